"""How many bytes the elements of a tensor take, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

__all__ = [
    "ELEMENT_TYPES",
    "MAX_MESSAGE_BYTES",
    "element_count",
    "stored_bytes",
    "tensor_bytes",
]

#: Most bytes that one protobuf message can have.
MAX_MESSAGE_BYTES = 2**31 - 1

#: Every element type that is known, `UNDEFINED` included, by its number in `TensorProto`.
ELEMENT_TYPES = frozenset(int(dtype) for dtype in ir.DataType)

_MAX_BYTES = 2**63 - 1
_BITS = {
    int(dtype): int(dtype.bitwidth)
    for dtype in ir.DataType
    if dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING)
}


def element_count(dims: Iterable[int]) -> int:
    """Return the number of elements of a tensor of shape `dims`; 1 for a scalar.

    Raises:
        ValueError: If a dim is negative, or the number exceeds 2**63 - 1; the text says which.
    """
    sizes = list(dims)
    if sizes and min(sizes) < 0:
        raise ValueError(f"dim {min(sizes)} is negative")
    if 0 in sizes:
        return 0
    count = 1
    for size in sizes:
        count *= size
        if count > _MAX_BYTES:
            raise ValueError("the number of elements exceeds 2**63 - 1")
    return count


def stored_bytes(dims: Iterable[int], dtype: int) -> int | None:
    """Return the bytes that a tensor takes in `raw_data` or in an external file.

    Elements of 2, 4 and 6 bits are packed without gaps and the last byte is filled up, as
    `TensorProto` of onnx lays down.

    Args:
        dims: Shape of the tensor.
        dtype: Number of the element type in `TensorProto`.

    Returns:
        The bytes; None for strings, the undefined type, and types that are not known.

    Raises:
        ValueError: If a dim is negative, or the size exceeds 2**63 - 1 bytes; the text says which.
    """
    count = element_count(dims)
    bits = _BITS.get(dtype)
    if bits is None:
        return None
    size = (count * bits + 7) // 8
    if size > _MAX_BYTES:
        raise ValueError("the size exceeds 2**63 - 1 bytes")
    return size


def tensor_bytes(tensor: ir.TensorProtocol) -> int:
    """Return the bytes that the values of `tensor` take, read off its shape and type.

    Strings count with their length. A tensor of an undefined type or with impossible dims counts
    as 0: what is wrong with it is said elsewhere.
    """
    if tensor.dtype == ir.DataType.STRING:
        # Strings cannot be external; such a tensor has no bytes that are known.
        return 0 if isinstance(tensor, ir.ExternalTensor) else int(tensor.nbytes)
    try:
        return stored_bytes(tensor.shape.numpy(), int(tensor.dtype)) or 0
    except (TypeError, ValueError):
        return 0
