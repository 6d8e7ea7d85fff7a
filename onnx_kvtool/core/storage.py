"""Bytes of the elements of a tensor, and constants that contradict their declaration."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.walk import maker

# Bytes of the elements of a tensor, in memory and on disk.


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
    `TensorProto` of onnx lays down. Strings, the undefined type and unknown types give None.

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
    """Return the bytes of the values of `tensor`, from its shape and type.

    Strings count with their length. A tensor of an undefined type or with impossible dims counts
    as 0; other checks report it.
    """
    if tensor.dtype == ir.DataType.STRING:
        # Strings cannot be external; the size of such a tensor is unknown.
        return 0 if isinstance(tensor, ir.ExternalTensor) else int(tensor.nbytes)
    try:
        return stored_bytes(tensor.shape.numpy(), int(tensor.dtype)) or 0
    except (TypeError, ValueError):
        return 0


# Constants whose declaration differs from their content.


def stored_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant; None for any other value.

    None also for a Constant that holds no tensor, but a number or a list.
    """
    node = maker(value, "Constant")
    if value.const_value is not None or node is None:
        return value.const_value
    attribute = node.attributes.get("value")
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return None
    tensor: ir.TensorProtocol = attribute.value
    return tensor


def fixed_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of a constant that no caller overrides; None for any other value."""
    return None if value is None or value.is_graph_input() else stored_tensor(value)


def small_tensor(value: ir.Value | None, most: int) -> ir.TensorProtocol | None:
    """Return such a tensor of at most `most` elements that the file itself holds, or None."""
    tensor = fixed_tensor(value)
    if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.size > most:
        return None
    return tensor


def is_misdeclared(value: ir.Value) -> bool:
    """Return whether the declared type or shape of a constant contradicts its tensor.

    `value_info`, or a graph input with the name of an initializer, declares it. This reads no
    elements. A name contradicts nothing, nor does a negative size, which some exporters write for
    an unknown one.
    """
    tensor = stored_tensor(value)
    if tensor is None:
        return False
    type_, shape = value.type, value.shape
    # `isinstance` of a class that has a protocol for a base takes a microsecond to say no.
    if type_ is not None and (
        type(type_) in (ir.SequenceType, ir.OptionalType)
        or type_.dtype not in (tensor.dtype, ir.DataType.UNDEFINED)
    ):
        return True
    if shape is None or shape is tensor.shape:
        return False
    sizes = tensor.shape.numpy()
    return len(shape) != len(sizes) or any(
        isinstance(dim, int) and dim >= 0 and dim != size
        for dim, size in zip(shape, sizes, strict=True)
    )


# Placeholders for tensors while a model is read, and the tensors put back.


_Taken = Callable[[ir.TensorProtocol | None], ir.TensorProtocol | None]
_Made = Callable[[int, ir.TensorProtocol], ir.TensorProtocol]


def new_mark() -> str:
    """Return the prefix of the locations of placeholders; random, so that no model has it.

    A number follows, which identifies the tensor.
    """
    return f"onnx_kvtool.{secrets.token_hex(16)}."


def number_of(tensor: ir.TensorProtocol | None, mark: str) -> int | None:
    """Return the number of a placeholder with this mark; None for other locations."""
    if not isinstance(tensor, ir.ExternalTensor):
        return None
    location = str(tensor.location)
    return int(location.removeprefix(mark)) if location.startswith(mark) else None


def put_back(model: ir.Model, mark: str, made: _Made) -> None:
    """Put tensors in the place of the placeholders with a mark; `made` gives them by number."""

    def taken(tensor: ir.TensorProtocol | None) -> ir.TensorProtocol | None:
        number = number_of(tensor, mark)
        return None if number is None or tensor is None else made(number, tensor)

    for _, graph in walk.graphs(model):
        for value in graph.initializers.values():
            if (tensor := taken(value.const_value)) is not None:
                value.const_value = tensor
        for node in graph:
            if node.attributes.data:
                _put_attributes_back(node.attributes.data, taken)
    for function in model.functions.values():
        _put_attributes_back(function.attributes.data, taken)


def _put_attributes_back(attributes: dict[str, ir.Attr], taken: _Taken) -> None:
    for name, attribute in attributes.items():
        if attribute.is_ref() or attribute.value is None:
            continue
        kind, doc = attribute.type, attribute.doc_string
        if kind is ir.AttributeType.TENSOR:
            if (tensor := taken(attribute.value)) is not None:
                attributes[name] = ir.Attr(name, kind, tensor, doc_string=doc)
        elif kind is ir.AttributeType.TENSORS:
            tensors = tuple(taken(value) or value for value in attribute.value)
            attributes[name] = ir.Attr(name, kind, tensors, doc_string=doc)
