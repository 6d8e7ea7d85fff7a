"""Operators on quantized values: linear, of 4-bit floats, and fused with what stands around."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.activation import softmax_from
from onnx_kvtool.contrib.block_quantized import block_product
from onnx_kvtool.contrib.normalization import root_mean_square
from onnx_kvtool.contrib.rule import Site, given, known_rank, no_form, refuse_value
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    cast,
    channels_first,
    channels_last,
    dtype_of,
    one_shape,
    reduce,
    scalar,
    unsqueeze,
)
from onnx_kvtool.ops.contrib import quant_type_values
from onnx_kvtool.ops.view import given_input
from onnx_kvtool.symbolic.dimensions import dims_of

# Operators on 8-bit quantized values: DequantizeLinear, the operator of ONNX, QuantizeLinear.


_D = ir.DataType
_CONV = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")


def q_linear_add(site: Site) -> ir.Value:
    """Write QLinearAdd as Add of DequantizeLinear of both, quantized."""
    return _elementwise(site, "Add", 2)


def q_linear_mul(site: Site) -> ir.Value:
    """Write QLinearMul as Mul of DequantizeLinear of both, quantized."""
    return _elementwise(site, "Mul", 2)


def q_linear_sigmoid(site: Site) -> ir.Value:
    """Write QLinearSigmoid as Sigmoid of DequantizeLinear, quantized."""
    return _elementwise(site, "Sigmoid")


def q_linear_leaky_relu(site: Site) -> ir.Value:
    """Write QLinearLeakyRelu as LeakyRelu of DequantizeLinear, quantized."""
    return _elementwise(site, "LeakyRelu", attributes=given(site, "alpha"))


def q_linear_softmax(site: Site) -> ir.Value:
    """Write QLinearSoftmax as Softmax-13 of DequantizeLinear, quantized.

    With an `opset` below 13 the sum goes over all axes from `axis` on.
    """
    x, axis = _dequantized(site), site.integer("axis")
    if site.integer("opset") >= 13:
        result = site.op("Softmax", x, axis=axis)
    else:
        result = softmax_from(site, x, axis, site.required("X"))
    return _requantized(site, result)


def q_linear_global_average_pool(site: Site) -> ir.Value:
    """Write QLinearGlobalAveragePool as ReduceMean of DequantizeLinear, quantized."""
    rank = known_rank(site, site.required("X"))
    x = _dequantized(site)
    first = 1 if site.integer("channels_last") else 2
    axes = list(range(first, first + rank - 2))
    return _requantized(site, reduce(site, "ReduceMean", x, axes))


def q_linear_average_pool(site: Site) -> ir.Value:
    """Write QLinearAveragePool as AveragePool of DequantizeLinear, quantized."""
    x = _dequantized(site)
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    is_last = site.integer("channels_last") != 0
    rank = known_rank(site, site.required("X")) if is_last else 0
    result = channels_first(site, x, rank) if is_last else x
    result = site.op("AveragePool", result, attributes=given(site, *names))
    result = channels_last(site, result, rank) if is_last else result
    return _requantized(site, result)


def q_linear_conv(site: Site) -> ir.Value:
    """Write QLinearConv of `com.microsoft`, channels last or not, as that of ONNX."""
    x, is_last = site.required("x"), site.integer("channels_last") != 0
    rank = known_rank(site, site.required("w")) if is_last else 0
    if is_last:
        x = channels_first(site, x, rank)
    names = ("x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point")
    inputs = (x, *(site.required(name) for name in names), site.input("B"))
    result = site.op("QLinearConv", *inputs, attributes=given(site, *_CONV, "group"))
    return channels_last(site, result, rank) if is_last else result


def q_linear_concat(site: Site) -> ir.Value:
    """Write QLinearConcat as Concat of DequantizeLinear of each, quantized."""
    scale, zero, *rest = site.node.inputs
    if len(rest) % 3 or not rest or zero is None or None in (scale, *rest):
        raise no_form(
            f"`QLinearConcat` has {len(rest)} inputs behind its zero point, expected three for "
            "each part"
        )
    parts = [
        site.op("DequantizeLinear", *rest[at : at + 3], dtype=_D.FLOAT)
        for at in range(0, len(rest), 3)
    ]
    result = site.op("Concat", *parts, axis=site.integer("axis"))
    return quantized(site, result, scale, zero, zero.dtype)


def q_linear_where(site: Site) -> ir.Value:
    """Write QLinearWhere as Where of DequantizeLinear, quantized."""
    yes, no = _dequantized(site, 1), _dequantized(site, 4)
    condition = site.required("condition")
    asked, *shapes = (dims_of(value) for value in (condition, yes, no))
    ranks = [len(dims) for dims in shapes if dims is not None]
    if asked is not None and len(ranks) == 2 and max(ranks) > len(asked):
        condition = unsqueeze(site, condition, range(max(ranks) - len(asked)))
    yes, no = one_shape(site, yes, no, dims_of(no)), one_shape(site, no, yes, dims_of(yes))
    yes, no = (one_shape(site, value, condition, asked) for value in (yes, no))
    result = site.op("Where", condition, yes, no)
    return _requantized(site, result, 7)


def quantize_linear(site: Site) -> ir.Value:
    """Write QuantizeLinear of `com.microsoft`, which takes more types, as that of ONNX."""
    zero = site.input("y_zero_point")
    dtype = _D.UINT8 if zero is None else None
    x, scale = site.operands("x", "y_scale")
    return site.op("QuantizeLinear", x, scale, zero, attributes=given(site, "axis"), dtype=dtype)


def dequantize_linear(site: Site) -> ir.Value:
    """Write DequantizeLinear of `com.microsoft`, which takes more types, as that of ONNX."""
    x, scale = site.operands("x", "x_scale")
    inputs, axis = (x, scale, site.input("x_zero_point")), given(site, "axis")
    return site.op("DequantizeLinear", *inputs, attributes=axis, dtype=dtype_of(scale))


def _elementwise(
    site: Site,
    op_type: str,
    count: int = 1,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> ir.Value:
    operands = (_dequantized(site, 3 * i) for i in range(count))
    result = site.op(op_type, *operands, attributes=attributes)
    return _requantized(site, result, 3 * count)


def _dequantized(site: Site, at: int = 0) -> ir.Value:
    """Return the dequantized values of the input `at`, float32; scale and zero point follow it."""
    x, scale, zero = (given_input(site.node, at + i) for i in range(3))
    dequantized = site.op("DequantizeLinear", x, scale, zero, dtype=_D.FLOAT)
    dequantized.shape = None if x is None or x.shape is None else ir.Shape(x.shape)
    return dequantized


def _requantized(site: Site, result: ir.Value, at: int = 3) -> ir.Value:
    """Return a result as quantized values; the inputs `at` and behind are scale and zero point."""
    x = site.node.inputs[at - 3]
    zero, dtype = given_input(site.node, at + 1), None if x is None else x.dtype
    return quantized(site, result, site.node.inputs[at], zero, dtype)


def quantized(
    em: Emitter,
    x: ir.Value,
    scale: ir.Value | None,
    zero: ir.Value | None,
    dtype: ir.DataType | None,
) -> ir.Value:
    """Return the quantized int8 or uint8 values of float32 values.

    Scale and zero point have one element each; a zero point of None is 0.
    """
    if dtype not in (_D.INT8, _D.UINT8):
        raise Refusal(
            "unknown-type", "the type of the quantized values is unknown", help="declare it"
        )
    if zero is None and dtype == _D.INT8:
        zero = em.constant(np.zeros((), np.int8), "zero_point")
    return em.op("QuantizeLinear", x, scale, zero, dtype=dtype)


# Products of 8-bit quantized values: MatMulInteger, and what dequantizes its result.


_RIGHT = ("B", "b_scale", "b_zero_point")


def dynamic_quantize_mat_mul(site: Site) -> ir.Value:
    """Write DynamicQuantizeMatMul as DynamicQuantizeLinear, MatMulInteger, Cast and Mul."""
    quantized_a, scale, zero = site.multi("DynamicQuantizeLinear", site.required("A"), count=3)
    return _product(site, (quantized_a, scale, zero), _RIGHT)


def mat_mul_integer_to_float(site: Site) -> ir.Value:
    """Write MatMulIntegerToFloat as MatMulInteger, Cast and Mul.

    The scales are multiplied first, and everything is float32 until the result is rounded.
    """
    return quantized_product(site, ("A", "a_scale", "a_zero_point"), _RIGHT)


def quantized_product(
    site: Site, left: tuple[str, str, str], right: tuple[str, str, str]
) -> ir.Value:
    """Return the product of two quantized factors with the `bias` of the node.

    MatMulInteger takes a vector for one zero point per row, so that those of the left are scalars.

    Args:
        site: The node.
        left: The inputs with the left factor: quantized values, its one scale and zero point.
        right: Those of the right one, which may have a scale and a zero point for each column.

    Returns:
        Of the type of the right scale, computed in float32.
    """
    factor, scale = site.operands(*left[:2])
    zero = site.input(left[2])
    scale = scalar(site, cast(site, scale, _D.FLOAT))
    point = None if zero is None else scalar(site, zero)
    result = _product(site, (factor, scale, point), right)
    return cast(site, result, dtype_of(site.required(right[1])))


def _product(
    site: Site,
    left: tuple[ir.Value, ir.Value, ir.Value | None],
    right: tuple[str, str, str],
) -> ir.Value:
    """Return the product as float32, with the bias of the node."""
    op, (factor, scale, zero) = site.op, left
    point, bias = site.input(right[2]), site.input("bias")
    if zero is None and point is not None:
        zero = site.constant(np.zeros((), (factor.dtype or _D.UINT8).numpy()), "zero_point")
    product = op("MatMulInteger", factor, site.required(right[0]), zero, point)
    scale = op("Mul", scale, cast(site, site.required(right[1]), _D.FLOAT), hint="scale")
    result = op("Mul", cast(site, product, _D.FLOAT), scale, hint="scaled")
    return result if bias is None else op("Add", result, cast(site, bias, _D.FLOAT), hint="biased")


def q_gemm(site: Site) -> ir.Value:
    """Write QGemm as MatMulInteger, Add of the int32 bias, Cast and Mul, quantized if it is."""
    op = site.op
    factors = [
        op("Transpose", x, perm=[1, 0]) if site.integer(f"trans{letter}") else x
        for letter, x in zip("AB", site.operands("A", "B"), strict=True)
    ]
    zeros = (scalar(site, site.required("a_zero_point")), site.required("b_zero_point"))
    total = op("MatMulInteger", *factors, *zeros)
    bias = site.input("C")
    if bias is not None:
        total = op("Add", total, bias)
    left, alpha = scalar(site, site.required("a_scale")), site.real("alpha")
    if alpha != 1.0:
        left = op("Mul", left, alpha)
    scale = op("Mul", left, site.required("b_scale"), hint="scale")
    result = op("Mul", cast(site, total, _D.FLOAT), scale, hint="scaled")
    factor, zero = site.input("y_scale"), site.input("y_zero_point")
    if factor is None:
        return result
    return quantized(site, result, factor, zero, _D.UINT8 if zero is None else zero.dtype)


# MatMulBnb4 of `com.microsoft`: weights of 4 bits, each an index into sixteen real numbers.


def mat_mul_bnb4(site: Site) -> ir.Value:
    """Write MatMulBnb4 as Gather of the two numbers of each byte, Mul, and MatMul.

    The bytes of the weight are not touched.

    Refuses weights that are no whole number of blocks, and weights that are not transposed: the
    kernel of onnxruntime 1.32 for CPUs reads outside of them.
    """
    refuse_value(site, "transB", 1)
    refuse_value(site, "quant_type", 0, 1)
    a, scales = site.operands("A", "absmax")
    width, columns, block = (site.integer(name) for name in ("K", "N", "block_size"))
    if block < 2 or width < 1 or columns < 1 or width * columns % block:
        raise no_form(
            f"`MatMulBnb4` has weights ({columns}, {width}) in blocks of {block}, expected a whole "
            "number of them"
        )
    op = site.op
    # The first element of a byte is in its high bits.
    pairs = quant_type_values(site.integer("quant_type"))
    table = np.stack([np.repeat(pairs, 16), np.tile(pairs, 16)], axis=-1)
    table = table.astype(dtype_of(scales).numpy())
    values = op("Gather", table, cast(site, site.required("B"), _D.INT32))
    values = op("Reshape", values, [-1, block])
    weights = op("Mul", values, op("Reshape", scales, [-1, 1]), hint="scaled")
    weights = op("Reshape", weights, [columns, width], hint="weight")
    weights = op("Transpose", weights, perm=[1, 0])
    return op("MatMul", a, weights)


# Products of one normalized input with weights of few bits, which onnxruntime has for GPUs.


def mat_mul_n_bits_mlp(site: Site) -> Replacement:
    """Write MatMulNBitsMlp as RMSNormalization-23, two of what MatMulNBits is, Sigmoid and Mul.

    Refuses other activations than `silu`, which its documentation does not name.
    """
    refuse_value(site, "activation", "silu")
    x, total = _normalized(site)
    op = site.op
    gate, up = (block_product(site, x, site.integer("N"), name) for name in ("gate_", "up_"))
    silu = op("Mul", gate, op("Sigmoid", gate), hint="silu")
    return _with_total(site, op("Mul", silu, up), total=total)


def mat_mul_n_bits_qkv(site: Site) -> Replacement:
    """Write MatMulNBitsQkv as RMSNormalization-23, and three of what MatMulNBits is."""
    x, total = _normalized(site)
    widths = {"q_": "Nq", "k_": "Nkv", "v_": "Nkv"}
    found = (block_product(site, x, site.integer(n), name) for name, n in widths.items())
    return _with_total(site, *found, total=total)


def _normalized(site: Site) -> tuple[ir.Value, ir.Value | None]:
    """Return what is multiplied, and the sum that is normalized where there is one."""
    x, skip, scale = site.required("A"), site.input("skip"), site.input("norm_scale")
    total = None if skip is None else site.op("Add", x, skip, hint="sum")
    if scale is None:
        if total is not None:
            raise no_form(f"`{site.node.op_type}` has `skip` without `norm_scale`")
        return x, None
    return root_mean_square(site, total or x, scale, -1, site.real("epsilon")), total


def _with_total(site: Site, *found: ir.Value, total: ir.Value | None) -> Replacement:
    """Return the outputs; the last is the sum."""
    count = len(site.node.outputs)
    if count > len(found) and site.node.outputs[-1].name and total is None:
        raise no_form(f"`{site.node.op_type}` gives a sum without `skip`")
    return Replacement((*found, total)[:count])
