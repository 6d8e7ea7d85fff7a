"""Operators on 8-bit codes: DequantizeLinear, the operator of ONNX, QuantizeLinear."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder, known_rank, only
from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import one_shape, reduce, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = [
    "dequantize_linear",
    "q_linear_add",
    "q_linear_average_pool",
    "q_linear_concat",
    "q_linear_conv",
    "q_linear_global_average_pool",
    "q_linear_leaky_relu",
    "q_linear_mul",
    "q_linear_sigmoid",
    "q_linear_softmax",
    "q_linear_where",
    "quantize_linear",
    "quantized",
]

_D = ir.DataType
_CONV = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")


def q_linear_add(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearAdd as Add of DequantizeLinear of both, quantized."""
    return _binary(view, em, "Add")


def q_linear_mul(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearMul as Mul of DequantizeLinear of both, quantized."""
    return _binary(view, em, "Mul")


def q_linear_sigmoid(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearSigmoid as Sigmoid of DequantizeLinear, quantized."""
    return _unary(view, em, "Sigmoid", {})


def q_linear_leaky_relu(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearLeakyRelu as LeakyRelu of DequantizeLinear, quantized."""
    alpha = view.attribute("alpha")
    assert isinstance(alpha, float)
    return _unary(view, em, "LeakyRelu", {"alpha": alpha})


def q_linear_softmax(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearSoftmax as Softmax-13 of DequantizeLinear, quantized.

    With an `opset` below 13 all axes from `axis` on are one.
    """
    x, axis = _number(view, em, "X", scale="X_scale", zero="x_zero_point"), view.integer("axis")
    if view.integer("opset") >= 13:
        result = em.op("Softmax", x, attributes={"axis": axis}, dtype=_D.FLOAT)
    else:
        flat = em.op("Flatten", x, attributes={"axis": axis}, dtype=_D.FLOAT)
        flat = em.op("Softmax", flat, attributes={"axis": -1}, dtype=_D.FLOAT)
        shape = em.op("Shape", view.required("X"))
        result = em.op("Reshape", flat, shape, dtype=_D.FLOAT)
    return only(_code(view, em, result, "y", "X"))


def q_linear_global_average_pool(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearGlobalAveragePool as ReduceMean of DequantizeLinear, quantized."""
    rank = known_rank(view, view.required("X"))
    x = _number(view, em, "X", scale="x_scale", zero="x_zero_point")
    first = 1 if view.integer("channels_last") else 2
    axes = list(range(first, first + rank - 2))
    return only(_code(view, em, reduce(em, "ReduceMean", x, axes), "y", "X"))


def q_linear_average_pool(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearAveragePool as AveragePool of DequantizeLinear, quantized."""
    x = _number(view, em, "X", scale="x_scale", zero="x_zero_point")
    names = ["auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"]
    given = {name: view.attribute(name) for name in names}
    attributes = {name: value for name, value in given.items() if value is not None}
    op = Builder(em, _D.FLOAT)
    if not view.integer("channels_last"):
        result = op("AveragePool", x, attributes=attributes)
        return only(_code(view, em, result, "y", "X"))
    last = known_rank(view, view.required("X")) - 1
    x = op("Transpose", x, attributes={"perm": [0, last, *range(1, last)]})
    result = op("AveragePool", x, attributes=attributes)
    result = op("Transpose", result, attributes={"perm": [0, *range(2, last + 1), 1]})
    return only(_code(view, em, result, "y", "X"))


def q_linear_conv(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearConv of `com.microsoft`, of which channels may come last, as that of ONNX."""
    x, last = view.required("x"), len(dims_of(view.required("w")) or ()) - 1
    given = {name: view.attribute(name) for name in (*_CONV, "group")}
    attributes = {name: value for name, value in given.items() if value is not None}
    is_last = view.integer("channels_last") != 0
    if is_last and last < 2:
        raise Refusal("unknown-rank", "the rank of the filters is unknown", help="declare it")
    if is_last:
        x = em.op(
            "Transpose",
            x,
            attributes={"perm": [0, last, *range(1, last)]},
            dtype=x.dtype or _D.UNDEFINED,
        )
    names = ("x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point")
    inputs = (x, *(view.required(name) for name in names), view.input("B"))
    dtype = view.required("y_zero_point").dtype or _D.UNDEFINED
    result = em.op("QLinearConv", *inputs, attributes=attributes, dtype=dtype)
    if is_last:
        perm = [0, *range(2, last + 1), 1]
        result = em.op("Transpose", result, attributes={"perm": perm}, dtype=dtype)
    return only(result)


def q_linear_concat(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearConcat as Concat of DequantizeLinear of each, quantized."""
    scale, zero, *rest = view.node.inputs
    if len(rest) % 3 or not rest or None in (scale, zero, *rest):
        raise Refusal(
            "contrib-form",
            f"`QLinearConcat` has {len(rest)} inputs behind its zero point, expected three for "
            "each part",
        )
    parts = [
        em.op("DequantizeLinear", *rest[at : at + 3], dtype=_D.FLOAT)
        for at in range(0, len(rest), 3)
    ]
    axis = view.integer("axis")
    result = em.op("Concat", *parts, attributes={"axis": axis}, dtype=_D.FLOAT)
    assert scale is not None and zero is not None
    return only(quantized(em, result, scale, zero, zero.dtype))


def q_linear_where(view: NodeView, em: Emitter) -> Replacement:
    """Write QLinearWhere as Where of DequantizeLinear, quantized."""
    yes, no = (_number(view, em, n, scale=f"{n.lower()}_scale", zero=f"{n.lower()}_zero_point")
               for n in "XY")  # fmt: skip
    condition = view.required("condition")
    asked, *shapes = (dims_of(value) for value in (condition, yes, no))
    ranks = [len(dims) for dims in shapes if dims is not None]
    if asked is not None and len(ranks) == 2 and max(ranks) > len(asked):
        condition = unsqueeze(em, condition, range(max(ranks) - len(asked)))
    yes, no = one_shape(em, yes, no, dims_of(no)), one_shape(em, no, yes, dims_of(yes))
    yes, no = (one_shape(em, value, condition, asked) for value in (yes, no))
    result = em.op("Where", condition, yes, no, dtype=_D.FLOAT)
    return only(_code(view, em, result, "z", "X"))


def quantize_linear(view: NodeView, em: Emitter) -> Replacement:
    """Write QuantizeLinear of `com.microsoft`, which takes more types, as that of ONNX."""
    zero = view.input("y_zero_point")
    dtype = _D.UINT8 if zero is None else zero.dtype or _D.UNDEFINED
    inputs = (view.required("x"), view.required("y_scale"), zero)
    return only(em.op("QuantizeLinear", *inputs, attributes=_axis(view), dtype=dtype))


def dequantize_linear(view: NodeView, em: Emitter) -> Replacement:
    """Write DequantizeLinear of `com.microsoft`, which takes more types, as that of ONNX."""
    scale = view.required("x_scale")
    inputs = (view.required("x"), scale, view.input("x_zero_point"))
    dtype = scale.dtype or _D.UNDEFINED
    return only(em.op("DequantizeLinear", *inputs, attributes=_axis(view), dtype=dtype))


def _binary(view: NodeView, em: Emitter, op_type: str) -> Replacement:
    result = em.op(op_type, _number(view, em, "A"), _number(view, em, "B"), dtype=_D.FLOAT)
    return only(_code(view, em, result, "C", "A"))


def _axis(view: NodeView) -> dict[str, AttributeValue]:
    axis = view.attribute("axis")
    return {} if axis is None else {"axis": axis}


def _unary(
    view: NodeView, em: Emitter, op_type: str, attributes: Mapping[str, AttributeValue]
) -> Replacement:
    result = em.op(op_type, _number(view, em, "X"), attributes=attributes, dtype=_D.FLOAT)
    return only(_code(view, em, result, "Y", "X"))


def _number(
    view: NodeView, em: Emitter, name: str, scale: str | None = None, zero: str | None = None
) -> ir.Value:
    """Return the numbers that an input of codes stands for, float32."""
    factor = view.required(scale or f"{name}_scale")
    codes = view.required(name)
    inputs = (codes, factor, view.input(zero or f"{name}_zero_point"))
    numbers = em.op("DequantizeLinear", *inputs, dtype=_D.FLOAT)
    numbers.shape = None if codes.shape is None else ir.Shape(codes.shape)
    return numbers


def _code(view: NodeView, em: Emitter, result: ir.Value, name: str, like: str) -> ir.Value:
    """Return the codes of a result, of the type of the input called `like`."""
    dtype = view.required(like).dtype
    return quantized(
        em, result, view.required(f"{name}_scale"), view.input(f"{name}_zero_point"), dtype
    )


def quantized(
    em: Emitter, x: ir.Value, scale: ir.Value, zero: ir.Value | None, dtype: ir.DataType | None
) -> ir.Value:
    """Return the codes of float32 numbers.

    Args:
        em: Where to build.
        x: The numbers.
        scale: One element.
        zero: One element of `dtype`; None for 0.
        dtype: int8 or uint8.
    """
    if dtype not in (_D.INT8, _D.UINT8):
        raise Refusal("unknown-type", "the type of the codes is unknown", help="declare it")
    if zero is None and dtype == _D.INT8:
        zero = em.constant(np.zeros((), np.int8), "zero_point")
    return em.op("QuantizeLinear", x, scale, zero, dtype=dtype)
