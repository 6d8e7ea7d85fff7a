"""Elements of 2, 4 or 8 bits that lie in bytes, as tensors of codes."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = [
    "apart",
    "is_stored",
    "known_type",
    "packed_codes",
    "packed_zero_points",
    "reshaped",
    "stored_as",
]

_D = ir.DataType


def apart(em: Emitter, packed: ir.Value, bits: int, dtype: ir.DataType) -> ir.Value:
    """Return the elements of each byte along a new last dimension, the low bits first."""

    def build() -> ir.Value:
        shifts = range(0, 8, bits)
        codes = np.arange(256)
        digits = np.stack([codes >> shift & (1 << bits) - 1 for shift in shifts], axis=-1)
        if dtype == _D.INT8:
            digits = np.where(digits >= 1 << bits - 1, digits - (1 << bits), digits)
        table = ir.Tensor(digits.astype(dtype.numpy()))
        hint = f"{bits}_bits_of_byte"
        return em.op("Constant", attributes={"value": table}, dtype=dtype, hint=hint)

    table = em.once(("bits of a byte", bits, dtype), build)
    return em.op("Gather", table, cast(em, packed, _D.INT32), dtype=dtype)


def is_stored(value: ir.Value) -> bool:
    """Return whether a value is a constant that no caller can replace."""
    return value.const_value is not None and not value.is_graph_input()


def packed_codes(em: Emitter, packed: ir.Value, bits: int, shape: tuple[int, ...]) -> ir.Value:
    """Return the elements that lie in bytes, in `shape`: uint4 if they are stored, or uint8."""
    dtype = {4: _D.UINT4, 8: _D.UINT8}.get(bits)
    if dtype is not None and is_stored(packed):
        return stored_as(em, packed, dtype, shape)
    if bits == 8:
        return reshaped(em, packed, shape)
    return reshaped(em, apart(em, packed, bits, _D.UINT8), shape)


def stored_as(em: Emitter, value: ir.Value, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
    """Return an initializer that reads the bytes of another as `shape` elements of `dtype`."""
    tensor = value.const_value
    assert tensor is not None

    def build() -> ir.TensorProtocol:
        if isinstance(tensor, ir.ExternalTensor):
            made = ir.ExternalTensor(
                tensor.location,
                tensor.offset,
                tensor.length,
                dtype,
                shape=ir.Shape(shape),
                name="",
                doc_string=tensor.doc_string,
                metadata_props=dict(tensor.metadata_props),
                base_dir=tensor.base_dir,
            )
            made.meta.update(tensor.meta)
            return made
        held = np.frombuffer(tensor.tobytes(), np.uint8)
        if dtype == _D.UINT4:
            return ir.PackedTensor(held, dtype, shape=ir.Shape(shape))
        return ir.Tensor(held.reshape(shape))

    return em.weight(("bytes", value, dtype, shape), build, f"{value.name}/{dtype.name.lower()}")


def packed_zero_points(
    em: Emitter,
    given: ir.Value | None,
    bits: int,
    dtype: ir.DataType | None,
    shape: tuple[int, ...],
    along: tuple[int, ...] | None = None,
) -> ir.Value:
    """Return the zero point of each block.

    Args:
        em: Where to build.
        given: Packed along the last axis, of which each row begins with a byte; None for the
            middle of the codes.
        bits: Of a code.
        dtype: The type of the codes, uint4 or uint8.
        shape: That of the scales: (..., blocks).
        along: Another shape of as many elements, along whose last axis they are packed.

    Returns:
        `shape`, of the type of the codes.
    """
    *front, blocks = along or shape
    rows = prod(front)
    assert dtype is not None
    if given is None:
        middle = np.full(shape, 2 ** (bits - 1), np.uint8)
        return _tensor(em, middle, dtype)
    row = -(-blocks * bits // 8)
    if is_stored(given):
        assert given.const_value is not None
        is_dense = dtype.bitwidth == bits and blocks * bits == row * 8
        if is_dense and given.const_value.size == rows * row:
            return stored_as(em, given, dtype, shape)
        packed = array(given.const_value).reshape(rows, row)
        digits = packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1
        whole = digits.reshape(rows, -1)[:, :blocks].astype(np.uint8)
        return _tensor(em, whole.reshape(shape), dtype)
    packed_row = reshaped(em, given, (rows, row))
    if bits == 8:
        return reshaped(em, packed_row, shape)
    digits_row = reshaped(em, apart(em, packed_row, bits, _D.UINT8), (rows, row * 8 // bits))
    bounds = (em.constant([bound], "bound") for bound in (0, blocks, 1))
    whole_rows = em.op("Slice", digits_row, *bounds, dtype=_D.UINT8)
    if shape != (rows, blocks):
        whole_rows = reshaped(em, whole_rows, shape)
    return cast(em, whole_rows, dtype)


def _tensor(em: Emitter, codes: np.ndarray, dtype: ir.DataType) -> ir.Value:
    if dtype == _D.UINT4:
        return em.tensor(ir.Tensor(codes.astype(ml_dtypes.uint4), dtype=dtype), "zero_points")
    return em.constant(codes, "zero_points")


def reshaped(em: Emitter, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """Return a value in another shape; the value itself where it is declared to have that."""
    if dims_of(value) == shape:
        return value
    target = em.constant(list(shape), "shape")
    return em.op("Reshape", value, target, dtype=value.dtype or _D.UNDEFINED)


def known_type(value: ir.Value) -> ir.DataType:
    """Return the element type of a value.

    Raises:
        Refusal: If it is unknown.
    """
    if value.dtype is None or value.dtype == _D.UNDEFINED:
        raise Refusal(
            "unknown-type", f"the element type of `{value.name}` is unknown", help="declare it"
        )
    return value.dtype
