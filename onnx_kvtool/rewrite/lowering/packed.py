"""Constants of element types that a target lacks: their bytes, and nodes that take these apart.

What the file holds of such a constant is taken over untouched, as bytes: nothing is read, and
external data stays where it is. A table says what each byte holds, and runtimes that fold constants
look it up once, when they load the model.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.files.external_data import array
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast

__all__ = ["CARRIERS", "as_bytes", "unpacked"]

_D = ir.DataType

CARRIERS: Mapping[ir.DataType, ir.DataType] = {
    # float16 holds all numbers of the 8-bit and 4-bit floats, NaN and infinities included.
    **dict.fromkeys((_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2), _D.FLOAT16),
    **dict.fromkeys((_D.FLOAT8E5M2FNUZ, _D.FLOAT4E2M1), _D.FLOAT16),
    # 2**-127, the least of the powers of two, is a subnormal number of float32.
    _D.FLOAT8E8M0: _D.FLOAT,
    **dict.fromkeys((_D.INT4, _D.INT2), _D.INT8),
    **dict.fromkeys((_D.UINT4, _D.UINT2), _D.UINT8),
}
"""The type that stands for a missing one where values are moved and computed with."""

_FEW = 64
"""Elements. So many are written in the type that carries them."""


def as_bytes(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """Return a tensor of a type of `CARRIERS` in another form that every opset has.

    Args:
        tensor: Of any shape; its values are not touched if they are external.
        name: Of the result.

    Returns:
        A few values: of the carrier and the shape of `tensor`. Else the bytes that hold them,
        uint8: of its shape, the last dimension divided by the number of elements that a byte
        holds; (bytes,) where that is no whole number.
    """
    dims = tuple(tensor.shape.numpy())
    per_byte = _per_byte(tensor.dtype)
    if not isinstance(tensor, ir.ExternalTensor) and tensor.size <= _FEW:
        carrier = CARRIERS[tensor.dtype].numpy()
        return ir.Tensor(array(tensor).astype(np.float32).astype(carrier), name=name)
    if dims and dims[-1] % per_byte == 0:
        dims = (*dims[:-1], dims[-1] // per_byte)
    else:
        dims = (-(-int(tensor.size) // per_byte),)
    if isinstance(tensor, ir.ExternalTensor):
        stored = ir.ExternalTensor(
            tensor.location,
            tensor.offset,
            tensor.length,
            _D.UINT8,
            shape=ir.Shape(dims),
            name=name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
            base_dir=tensor.base_dir,
        )
        stored.meta.update(tensor.meta)
        return stored
    return ir.Tensor(np.frombuffer(tensor.tobytes(), np.uint8).reshape(dims), name=name)


def unpacked(em: Emitter, stored: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
    """Return the elements of `tensor` in the type that carries them.

    Args:
        em: Where to build.
        stored: What `as_bytes` made of it.
        tensor: The original.
    """
    dtype = CARRIERS[tensor.dtype]
    if stored.dtype == dtype and stored.shape == tensor.shape:
        return stored
    dims = [int(size) for size in tensor.shape.numpy()]
    per_byte = _per_byte(tensor.dtype)
    table = em.once(("elements of a byte", tensor.dtype), lambda: _constant(em, tensor.dtype))
    value = em.op("Gather", table, cast(em, stored, _D.INT32), dtype=dtype)
    if per_byte == 1:
        return value
    if stored.shape is not None and len(stored.shape) == len(dims) and dims[-1] % per_byte == 0:
        # Sizes that are taken over need not be known, in a copy of other sizes either.
        shape = em.constant([0] * (len(dims) - 1) + [-1], "shape")
        return em.op("Reshape", value, shape, dtype=dtype)
    count = int(tensor.size)
    value = em.op("Reshape", value, em.constant([-1], "shape"), dtype=dtype)
    if count % per_byte:
        ends = (em.constant([bound], "bound") for bound in (0, count))
        value = em.op("Slice", value, *ends, dtype=dtype)
    return em.op("Reshape", value, em.constant(dims, "shape"), dtype=dtype)


def _constant(em: Emitter, dtype: ir.DataType) -> ir.Value:
    # A node, not an initializer, which would look like a weight that the source does not have.
    table = ir.Tensor(_table(dtype))
    hint = f"{dtype.name.lower()}_of_byte"
    return em.op("Constant", attributes={"value": table}, dtype=table.dtype, hint=hint)


def _per_byte(dtype: ir.DataType) -> int:
    return 8 // int(dtype.bitwidth)


def _table(dtype: ir.DataType) -> np.ndarray:
    """Return what each byte holds: (256,), or (256, n) for n elements, the low bits first."""
    carrier, bits = CARRIERS[dtype].numpy(), int(dtype.bitwidth)
    codes = np.arange(256, dtype=np.uint8)
    if bits == 8:
        return np.asarray(codes.view(dtype.numpy()).astype(np.float32).astype(carrier))
    digits = np.stack([codes >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], axis=-1)
    if dtype == _D.FLOAT4E2M1:
        return np.asarray(digits.view(ml_dtypes.float4_e2m1fn).astype(carrier))
    if dtype in (_D.INT4, _D.INT2):
        half = 1 << bits - 1
        return np.where(digits >= half, digits.astype(np.int16) - 2 * half, digits).astype(carrier)
    return digits.astype(carrier)
