"""Products with weights that are quantized in blocks, and rows gathered from them."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, known_type, no_form, only, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.model_io.external_data import array, reread
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.symbolic.dimensions import dims_of

# Elements of 2, 4 or 8 bits packed in bytes, as tensors of quantized values.


_D = ir.DataType


def apart(em: Emitter, packed: ir.Value, bits: int, dtype: ir.DataType) -> ir.Value:
    """Return the elements of each byte along a new last dimension, the low bits first."""

    def build() -> ir.Value:
        shifts = range(0, 8, bits)
        quantized = np.arange(256)
        digits = np.stack([quantized >> shift & (1 << bits) - 1 for shift in shifts], axis=-1)
        if dtype == _D.INT8:
            digits = np.where(digits >= 1 << bits - 1, digits - (1 << bits), digits)
        table = ir.Tensor(digits.astype(dtype.numpy()))
        hint = f"{bits}_bits_of_byte"
        return em.op("Constant", value=table, hint=hint)

    table = em.once(("bits of a byte", bits, dtype), build)
    return em.op("Gather", table, cast(em, packed, _D.INT32))


def is_stored(value: ir.Value) -> bool:
    """Return whether a value is a constant that no caller can replace."""
    return value.const_value is not None and not value.is_graph_input()


def packed_values(em: Emitter, packed: ir.Value, bits: int, shape: tuple[int, ...]) -> ir.Value:
    """Return elements packed in bytes as `shape`: uint4 if they are a constant, else uint8."""
    dtype = {4: _D.UINT4, 8: _D.UINT8}.get(bits)
    if dtype is not None and is_stored(packed):
        return stored_as(em, packed, dtype, shape)
    if bits == 8:
        return reshaped(em, packed, shape)
    return reshaped(em, apart(em, packed, bits, _D.UINT8), shape)


def stored_as(em: Emitter, value: ir.Value, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
    """Return an initializer with the bytes of another one, read as `dtype` of this shape."""
    tensor, hint = value.const_value, f"{value.name}/{dtype.name.lower()}"
    assert tensor is not None
    return em.weight(("bytes", value, dtype, shape), lambda: reread(tensor, dtype, shape), hint)


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
        given: Packed along the last axis; each row begins with a new byte; None for the middle of
            the range.
        bits: Bits of a quantized value.
        dtype: The type of the quantized values, uint4 or uint8.
        shape: The shape of the scales: (..., blocks).
        along: Another shape with as many elements, if they are packed along the last axis of that.

    Returns:
        `shape`, of the type of the quantized values.
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
    whole_rows = _first(em, digits_row, blocks)
    if shape != (rows, blocks):
        whole_rows = reshaped(em, whole_rows, shape)
    return cast(em, whole_rows, dtype)


def _tensor(em: Emitter, quantized: np.ndarray, dtype: ir.DataType) -> ir.Value:
    if dtype == _D.UINT4:
        return em.tensor(ir.Tensor(quantized.astype(ml_dtypes.uint4), dtype=dtype), "zero_points")
    return em.constant(quantized, "zero_points")


def reshaped(em: Emitter, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """Return a value in another shape; the value itself if it is declared to have that shape."""
    if dims_of(value) == shape:
        return value
    return em.op("Reshape", value, list(shape))


# Weights of 2, 4 or 8 bits an element with a scale for each block: blocked DequantizeLinear.


def mat_mul_n_bits(site: Site) -> Replacement:
    """Write MatMulNBits as blocked DequantizeLinear, Transpose and MatMul.

    The bytes of a stored weight become a uint4 or uint8 tensor (N, K), unchanged. A zero point that
    is a real number is subtracted after a Cast. `g_idx` gives each row of the weight the scale of
    any block: scales are gathered by it then, without blocks. `accuracy_level`, which lets a
    runtime round `A`, is dropped.

    Refuses `g_idx` beside packed zero points, which onnxruntime ignores on a CPU, and with weights
    of other than 4 bits, since onnxruntime has no kernel.
    """
    refuse_value(site, "weight_prepacked", 0)
    refuse_value(site, "bits", 2, 4, 8)
    a, scales, bits = site.required("A"), site.required("scales"), site.integer("bits")
    width, columns, block = (site.integer(name) for name in ("K", "N", "block_size"))
    if block < 1 or width < 1 or columns < 1:
        raise no_form("`K`, `N` or `block_size` of `MatMulNBits` is below 1")
    blocks = -(-width // block)
    op, dtype = site.op, known_type(scales)
    quantized = packed_values(site, site.required("B"), bits, (columns, blocks * block))
    scales = reshaped(site, scales, (columns, blocks))
    zero, order = site.input("zero_points"), site.input("g_idx")
    if order is not None:
        if bits != 4 or (zero is not None and zero.dtype == _D.UINT8):
            refuse_input(site, "g_idx")
        weights = _reordered(site, quantized, scales, zero, order, (columns, width))
    elif zero is not None and zero.dtype != _D.UINT8:
        split = (columns, blocks, block)
        values = cast(site, reshaped(site, quantized, split), dtype)
        column = (columns, blocks, 1)
        centred = op("Sub", values, reshaped(site, cast(site, zero, dtype), column))
        weights = op("Mul", centred, reshaped(site, scales, column))
        weights = reshaped(site, weights, (columns, blocks * block))
    else:
        weights = _dequantized(site, quantized, scales, zero, (bits, block, columns, blocks))
    if blocks * block != width and order is None:
        weights = _first(site, weights, width)
    return only(_product(site, a, weights, site.input("bias")))


def block_product(site: Site, a: ir.Value, name: str, columns: int) -> ir.Value:
    """Return one of several products of a node, whose weights have blocks and no zero points.

    Args:
        site: The node, which has `K`, `bits` and `block_size`.
        a: (..., K).
        name: The prefix of the inputs: `gate` for `gate_B`, `gate_scales` and `gate_bias`.
        columns: N.

    Returns:
        (..., N).
    """
    refuse_value(site, "bits", 2, 4, 8)
    bits, width, block = (site.integer(part) for part in ("bits", "K", "block_size"))
    if block < 1 or width < 1 or columns < 1:
        raise no_form(f"a size of `{site.node.op_type}` is below 1")
    blocks = -(-width // block)
    quantized = packed_values(site, site.required(f"{name}_B"), bits, (columns, blocks * block))
    scales = reshaped(site, site.required(f"{name}_scales"), (columns, blocks))
    weights = _dequantized(site, quantized, scales, None, (bits, block, columns, blocks))
    if blocks * block != width:
        weights = _first(site, weights, width)
    return _product(site, a, weights, site.input(f"{name}_bias"))


def _dequantized(
    em: Emitter,
    quantized: ir.Value,
    scales: ir.Value,
    zero: ir.Value | None,
    sizes: tuple[int, int, int, int],
) -> ir.Value:
    """Return the dequantized values, (N, blocks * block); `sizes` are (bits, block, N, blocks)."""
    bits, block, *shape = sizes
    points = packed_zero_points(em, zero, bits, quantized.dtype, (shape[0], shape[1]))
    attributes = {"axis": 1, "block_size": block}
    dtype = known_type(scales)
    return em.op("DequantizeLinear", quantized, scales, points, attributes=attributes, dtype=dtype)


def _product(em: Emitter, a: ir.Value, weights: ir.Value, bias: ir.Value | None) -> ir.Value:
    """Return the product of `a` and transposed weights, (N, K), plus the bias."""
    result = em.op("MatMul", a, em.op("Transpose", weights, perm=[1, 0]))
    return result if bias is None else em.op("Add", result, bias)


def _reordered(
    em: Emitter,
    quantized: ir.Value,
    scales: ir.Value,
    zero: ir.Value | None,
    order: ir.Value,
    shape: tuple[int, int],
) -> ir.Value:
    """Return dequantized values whose columns have the scale of any block: (N, K).

    Args:
        em: Where to build.
        quantized: (N, K rounded up to whole blocks).
        scales: (N, blocks).
        zero: (N, blocks) real numbers, or flat; None for 8.
        order: The block of each column: (K,).
        shape: N and K.
    """
    op = em.op
    factors = op("Gather", scales, order, axis=1)
    values = _first(em, cast(em, quantized, known_type(scales)), shape[1])
    middle: ir.Value | int = 8
    if zero is not None:
        rows = reshaped(em, zero, (shape[0], -1))
        middle = op("Gather", rows, order, axis=1)
    return op("Mul", op("Sub", values, middle), factors)


def _first(em: Emitter, value: ir.Value, count: int, axis: int = 1) -> ir.Value:
    """Return the first elements along an axis; by default, the first columns of a matrix."""
    bounds = (em.constant([bound], "bound") for bound in (0, count, axis))
    return em.op("Slice", value, *bounds)


def gather_block_quantized(site: Site) -> Replacement:
    """Write GatherBlockQuantized as Gathers of values, scales and zero points, dequantized.

    So the whole table is never dequantized. Runtimes cannot gather int4 and uint4: these values are
    gathered as whole bytes. If the slices are along the last axis, the table is dequantized first.
    An index out of range fails; onnxruntime returns zeros there.
    """
    data, indices, scales = site.operands("data", "indices", "scales")
    dims, at = dims_of(data), dims_of(indices)
    if dims is None or at is None or dims_of(scales) is None:
        raise Refusal(
            "unknown-rank",
            "the rank of `data`, `indices` or `scales` of `GatherBlockQuantized` is unknown",
            help="declare their shapes",
        )
    if data.dtype not in (_D.UINT8, _D.INT4, _D.UINT4):
        raise Refusal(
            "element-type",
            f"`GatherBlockQuantized` of {known_type(data).name} has no standard form",
        )
    bits = site.integer("bits") if data.dtype == _D.UINT8 else 4
    refuse_value(site, "bits", 2, 4, 8)
    along = counted_axis(site.integer("gather_axis"), len(dims), "gather_axis")
    blocks = counted_axis(site.integer("quantize_axis"), len(dims), "quantize_axis")
    table = _Table(site, bits, data.dtype == _D.INT4)
    op, dtype = site.op, known_type(scales)
    zero, block = site.input("zero_points"), site.integer("block_size")
    if data.dtype == _D.UINT8 and (along, blocks) != (0, len(dims) - 1):
        raise no_form(
            "`GatherBlockQuantized` of uint8 gathers along another axis than 0, or has its blocks "
            "along another than the last"
        )
    if data.dtype != _D.UINT8 and not table.has_bytes(data, along):
        attributes = {"axis": blocks, "block_size": block}
        values = op("DequantizeLinear", data, scales, zero, attributes=attributes, dtype=dtype)
        return only(op("Gather", values, indices, axis=along))
    axis = blocks + (len(at) - 1 if blocks > along else 0)
    slices = op("Gather", scales, indices, axis=along)
    sizes = dims_of(scales) or ()
    slices.shape = ir.Shape([*sizes[:along], *at, *sizes[along + 1 :]])
    points = None
    if zero is not None:
        points = table.rows(zero, indices, along, dims_of(scales))
    elif data.dtype == _D.UINT8:
        middle = site.constant(np.array(2 ** (bits - 1), np.uint8), "zero_point")
        points = site.op("Expand", middle, site.op("Shape", slices))
    quantized = table.rows(data, indices, along, None)
    attributes = {"axis": axis, "block_size": block}
    inputs = quantized, slices, points
    return only(op("DequantizeLinear", *inputs, attributes=attributes, dtype=dtype))


class _Table:
    """Rows of quantized values that are packed in bytes, gathered as bytes.

    Args:
        em: Where to build.
        bits: Bits of an element.
        is_signed: Whether the elements are signed.
    """

    def __init__(self, em: Emitter, bits: int, is_signed: bool) -> None:
        self.em, self.bits, self.is_signed = em, bits, is_signed

    def has_bytes(self, quantized: ir.Value, along: int) -> bool:
        """Return whether stored 4-bit values are rows of whole bytes along the last axis."""
        dims = dims_of(quantized) or ()
        sizes = [dim for dim in dims if isinstance(dim, int)]
        is_sized = is_stored(quantized) and len(sizes) == len(dims)
        return is_sized and along < len(dims) - 1 and sizes[-1] % 2 == 0

    def rows(
        self,
        quantized: ir.Value,
        indices: ir.Value,
        along: int,
        wanted: tuple[object, ...] | None,
    ) -> ir.Value:
        """Return slices as int8 or uint8, one byte an element.

        Args:
            quantized: uint8 of packed elements, or stored int4 or uint4.
            indices: Which slices.
            along: The axis that is gathered.
            wanted: Dimensions; the result gets the last of them. None for all elements.
        """
        em, dtype = self.em, _D.INT8 if self.is_signed else _D.UINT8
        packed = quantized
        if quantized.dtype != _D.UINT8:
            if not self.has_bytes(quantized, along):
                wide = cast(em, quantized, dtype)
                return em.op("Gather", wide, indices, axis=along)
            dims = [d for d in dims_of(quantized) or () if isinstance(d, int)]
            packed = stored_as(em, quantized, _D.UINT8, (*dims[:-1], dims[-1] // 2))
        rows = em.op("Gather", packed, indices, axis=along)
        if self.bits == 8:
            return rows
        rows = apart(em, rows, self.bits, dtype)
        rank = len(dims_of(quantized) or ()) + len(dims_of(indices) or ()) - 1
        # The elements of a byte are a dimension of their own, which joins the one before it. A size
        # that is known is written, since -1 fails for an array without elements.
        size = (dims_of(packed) or (None,))[-1]
        joined = size * (8 // self.bits) if isinstance(size, int) else -1
        rows = em.op("Reshape", rows, [0] * (rank - 1) + [joined])
        count = wanted[-1] if wanted else None
        if wanted is None:
            return rows
        if not isinstance(count, int):
            raise Refusal(
                "unknown-size",
                "the number of blocks of `GatherBlockQuantized` is unknown",
                help="declare the shape of `scales`",
            )
        if count * self.bits % 8 == 0 or quantized.dtype != _D.UINT8:
            return rows
        return _first(em, rows, count, rank - 1)
