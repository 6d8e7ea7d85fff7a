"""IsInf, ThresholdedRelu and the (de)quantising operators of opsets 10 and 11, for older ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast, one_number, where
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import element_type
from onnx_kvtool.rewrite.lowering.early.products import distance, quantized

__all__ = [
    "lower_dequantize_linear_10",
    "lower_dynamic_quantize_linear_11",
    "lower_is_inf_10",
    "lower_quantize_linear_10",
    "lower_thresholded_relu_10",
]

_D = ir.DataType
_BOOL, _FLOAT = _D.BOOL, _D.FLOAT


def lower_is_inf_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Compare with the largest numbers of the type."""
    view = NodeView(node, context.opset_of(node))
    x = view.required("X")
    dtype = element_type(x, "IsInf", 10)
    bound = np.finfo(dtype.numpy()).max
    found = []
    for name, op_type, limit in (
        ("detect_positive", "Greater", bound),
        ("detect_negative", "Less", -bound),
    ):
        if view.integer(name):
            most = em.constant(np.array(limit, dtype.numpy()), "largest")
            found.append(em.op(op_type, x, most, dtype=_BOOL))
    if not found:
        nothing = em.op("IsNaN", x, dtype=_BOOL)
        never = em.op("Not", nothing, dtype=_BOOL)
        return Replacement((em.op("And", nothing, never, dtype=_BOOL),))
    result = found[0] if len(found) == 1 else em.op("Or", *found, dtype=_BOOL)
    return Replacement((result,))


def lower_thresholded_relu_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Choose between the input and zero."""
    view = NodeView(node, context.opset_of(node))
    x, alpha = view.required("X"), view.attribute("alpha")
    dtype = element_type(x, "ThresholdedRelu", 10)
    limit, zero = (em.constant(np.array(n, dtype.numpy()), "number") for n in (alpha, 0.0))
    is_above = em.op("Greater", x, limit, dtype=_BOOL)
    return Replacement((where(em, is_above, x, zero),))


def lower_dequantize_linear_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Multiply the distance from the zero point, in int32, with the scale.

    One number in a vector becomes a scalar where the input is one, or may be.
    """
    view = NodeView(node, context.opset_of(node))
    x = view.required("x")
    zero_point, scale = view.input("x_zero_point"), one_number(em, view.required("x_scale"), x)
    far = distance(em, x, None if zero_point is None else one_number(em, zero_point, x))
    return Replacement((em.op("Mul", cast(em, far, _FLOAT), scale, dtype=_FLOAT),))


def lower_quantize_linear_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Round the quotient to the nearest even number, add the zero point and clip to the type."""
    view = NodeView(node, context.opset_of(node))
    x = view.required("x")
    zero_point = view.input("y_zero_point")
    dtype = _D.UINT8 if zero_point is None else element_type(zero_point, "QuantizeLinear", 10)
    wide = cast(em, x, _FLOAT)
    scale = one_number(em, view.required("y_scale"), x)
    quotient = em.op("Div", wide, scale, dtype=_FLOAT, hint="quotient")
    zero_point = None if zero_point is None else one_number(em, zero_point, x)
    return Replacement((quantized(em, quotient, zero_point, dtype),))


def lower_dynamic_quantize_linear_11(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Quantise by the range of the input and zero; the scale of nothing but zeros is 1.

    As runtimes have it: the function body of the schema gives a scale of 0.
    """
    x = NodeView(node, context.opset_of(node)).required("x")

    def op(op_type: str, *inputs: ir.Value, hint: str | None = None) -> ir.Value:
        return em.op(op_type, *inputs, dtype=_FLOAT, hint=hint)

    zero, most, one = (em.constant(np.array(n, np.float32), "number") for n in (0.0, 255.0, 1.0))
    whole: dict[str, AttributeValue] = {"keepdims": 0}
    low, high = (
        op(bound, em.op(f"Reduce{bound}", x, attributes=whole, dtype=_FLOAT), zero, hint=bound)
        for bound in ("Min", "Max")
    )
    span = op("Sub", high, low, hint="range")
    is_some = em.op("Greater", span, zero, dtype=_BOOL)
    scale = where(em, is_some, op("Div", span, most), one, "scale")
    place = op("Sub", zero, op("Div", low, scale), hint="place")
    zero_point = quantized(em, place, None, _D.UINT8)
    y = em.op("QuantizeLinear", x, scale, zero_point, dtype=_D.UINT8)
    return Replacement((y, scale, zero_point))
