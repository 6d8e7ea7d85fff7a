"""Products with weights that are quantized in blocks, and rows gathered from them."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, known_type, no_form, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import cast, dtype_of
from onnx_kvtool.model_io.external_data import array, reread
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of, fixed_sizes

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
        return em.op("Constant", value=table, hint=f"{bits}_bits_of_byte")

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
    dtype: ir.DataType,
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
    rows, row = prod(front), -(-blocks * bits // 8)
    if given is not None and not is_stored(given):
        points = reshaped(em, given, (rows, row))
        if bits == 8:
            return reshaped(em, points, shape)
        points = reshaped(em, apart(em, points, bits, _D.UINT8), (rows, row * 8 // bits))
        points = _first(em, points, blocks)
        if shape != (rows, blocks):
            points = reshaped(em, points, shape)
        return cast(em, points, dtype)
    whole: np.ndarray = np.full(shape, 2 ** (bits - 1), np.uint8)
    if given is not None and (stored := given.const_value) is not None:
        is_dense = dtype.bitwidth == bits and blocks * bits == row * 8
        if is_dense and stored.size == rows * row:
            return stored_as(em, given, dtype, shape)
        packed = array(stored).reshape(rows, row, 1)
        digits = packed >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1
        whole = digits.reshape(rows, -1)[:, :blocks].reshape(shape)
    return em.tensor(ir.Tensor(whole.astype(dtype.numpy()), dtype=dtype), "zero_points")


def reshaped(em: Emitter, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """Return a value in another shape; the value itself if it is declared to have that shape."""
    if dims_of(value) == shape:
        return value
    return em.op("Reshape", value, list(shape))


# Weights of 2, 4 or 8 bits an element with a scale for each block: blocked DequantizeLinear.


def mat_mul_n_bits(site: Site) -> ir.Value:
    """Write MatMulNBits as blocked DequantizeLinear, Transpose and MatMul.

    The bytes of a stored weight become a uint4 or uint8 tensor (N, K), unchanged. A zero point that
    is a real number is subtracted after a Cast. `g_idx` gives each row of the weight the scale of
    any block: scales are gathered by it then, without blocks. `accuracy_level`, which lets a
    runtime round `A`, is dropped.

    Refuses `g_idx` beside packed zero points, which onnxruntime ignores on a CPU, and with weights
    of other than 4 bits, since onnxruntime has no kernel.
    """
    refuse_value(site, "weight_prepacked", 0)
    return block_product(site, site.required("A"), site.integer("N"))


def block_product(site: Site, a: ir.Value, columns: int, prefix: str = "") -> ir.Value:
    """Return a product of a node with weights that have blocks: (..., K) to (..., N).

    `prefix` is that of the inputs: `gate_` for `gate_B`, `gate_scales` and `gate_bias`.
    """
    refuse_value(site, "bits", 2, 4, 8)
    bits, width, block = (site.integer(name) for name in ("bits", "K", "block_size"))
    if min(block, width, columns) < 1:
        text = f"`K`, `block_size` or the number of columns of `{site.node.op_type}` is below 1"
        raise no_form(text)
    op, blocks = site.op, -(-width // block)
    whole = (columns, blocks * block)
    quantized = packed_values(site, site.required(f"{prefix}B"), bits, whole)
    scales = reshaped(site, site.required(f"{prefix}scales"), (columns, blocks))
    zero, order, bias = (site.find(prefix + name) for name in ("zero_points", "g_idx", "bias"))
    dtype = known_type(scales)
    if order is not None:
        if bits != 4 or (zero is not None and zero.dtype == _D.UINT8):
            refuse_input(site, "g_idx")
        values, middle = _first(site, cast(site, quantized, dtype), width), None
        factors = op("Gather", scales, order, axis=1)
        if zero is not None:  # real numbers, one for each block
            middle = op("Gather", reshaped(site, zero, (columns, -1)), order, axis=1)
        weights = op("Mul", op("Sub", values, 8 if middle is None else middle), factors)
    elif zero is not None and zero.dtype != _D.UINT8:
        column = (columns, blocks, 1)
        values = cast(site, reshaped(site, quantized, (columns, blocks, block)), dtype)
        centred = op("Sub", values, reshaped(site, cast(site, zero, dtype), column))
        weights = op("Mul", centred, reshaped(site, scales, column))
        weights = reshaped(site, weights, whole)
    else:
        points = packed_zero_points(site, zero, bits, dtype_of(quantized), (columns, blocks))
        weights = op(
            "DequantizeLinear", quantized, scales, points, axis=1, block_size=block, dtype=dtype
        )
    if blocks * block != width and order is None:
        weights = _first(site, weights, width)
    result = op("MatMul", a, op("Transpose", weights, perm=[1, 0]))
    return result if bias is None else op("Add", result, bias)


def _first(em: Emitter, value: ir.Value, count: int, axis: int = 1) -> ir.Value:
    """Return the first elements along an axis; by default, the first columns of a matrix."""
    return em.op("Slice", value, [0], [count], [axis])


def gather_block_quantized(site: Site) -> ir.Value:
    """Write GatherBlockQuantized as Gathers of values, scales and zero points, dequantized.

    So the whole table is never dequantized. Runtimes cannot gather int4 and uint4: these values are
    gathered as whole bytes. If the slices are along the last axis, the table is dequantized first.
    An index out of range fails; onnxruntime returns zeros there.
    """
    data, indices, scales = site.operands("data", "indices", "scales")
    dims, at, sizes = (dims_of(value) for value in (data, indices, scales))
    if dims is None or at is None or sizes is None:
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
    op, dtype, is_packed = site.op, known_type(scales), data.dtype == _D.UINT8
    narrow = _D.INT8 if data.dtype == _D.INT4 else _D.UINT8
    zero, block = site.input("zero_points"), site.integer("block_size")
    if is_packed and (along, blocks) != (0, len(dims) - 1):
        raise no_form(
            "`GatherBlockQuantized` of uint8 gathers along another axis than 0, or has its blocks "
            "along another than the last"
        )

    def bytes_of(quantized: ir.Value) -> ir.Value | None:
        """Return stored 4-bit values as bytes; None unless the last axis has whole ones."""
        sizes = fixed_sizes(dims_of(quantized))
        if not is_stored(quantized) or not sizes or along >= len(sizes) - 1 or sizes[-1] % 2:
            return None
        return stored_as(site, quantized, _D.UINT8, (*sizes[:-1], sizes[-1] // 2))

    def rows(quantized: ir.Value) -> ir.Value:
        """Return slices as int8 or uint8, one byte an element."""
        packed = quantized if is_packed else bytes_of(quantized)
        if packed is None:
            return op("Gather", cast(site, quantized, narrow), indices, axis=along)
        found = op("Gather", packed, indices, axis=along)
        if bits == 8:
            return found
        # The elements of a byte are a dimension of their own, which joins the one before it. A size
        # that is known is written, since -1 fails for an array without elements.
        size = dim_of(packed, -1)
        joined = size * (8 // bits) if isinstance(size, int) else -1
        front = len(dims_of(quantized) or ()) + len(at) - 2
        return op("Reshape", apart(site, found, bits, narrow), [*[0] * front, joined])

    attributes = {"axis": blocks, "block_size": block}
    if not is_packed and bytes_of(data) is None:
        values = op("DequantizeLinear", data, scales, zero, attributes=attributes, dtype=dtype)
        return op("Gather", values, indices, axis=along)
    attributes["axis"] += len(at) - 1 if blocks > along else 0
    slices = op("Gather", scales, indices, axis=along)
    slices.shape = ir.Shape([*sizes[:along], *at, *sizes[along + 1 :]])
    points = None
    if zero is not None:
        points, count = rows(zero), dim_of(scales, -1)
        if bits != 8 and (is_packed or bytes_of(zero) is not None):
            if not isinstance(count, int):
                raise Refusal(
                    "unknown-size",
                    "the number of blocks of `GatherBlockQuantized` is unknown",
                    help="declare the shape of `scales`",
                )
            held = dim_of(zero, -1)
            if is_packed and isinstance(held, int) and held != -(-count * bits // 8):
                raise no_form(f"`zero_points` of `GatherBlockQuantized` have {held} bytes")
            if is_packed and count * bits % 8:
                points = _first(site, points, count, len(dims) + len(at) - 2)
    elif is_packed:
        middle = np.array(2 ** (bits - 1), np.uint8)
        points = op("Expand", middle, op("Shape", slices))
    inputs = rows(data), slices, points
    return op("DequantizeLinear", *inputs, attributes=attributes, dtype=dtype)
