"""Mod, IsInf, ThresholdedRelu and the quantised operators of opset 10, for opset 9."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast, where
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement
from onnx_kvtool.rewrite.lowering.early.again import element_type, known_rank
from onnx_kvtool.rewrite.lowering.early.numbers import rounded

__all__ = [
    "lower_dequantize_linear_10",
    "lower_is_inf_10",
    "lower_mat_mul_integer_10",
    "lower_mod_10",
    "lower_quantize_linear_10",
    "lower_thresholded_relu_10",
]

_D = ir.DataType
_BOOL, _INT32, _INT64, _FLOAT = _D.BOOL, _D.INT32, _D.INT64, _D.FLOAT


def lower_mod_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Take the quotient of integers, which Div cuts off, times the divisor from the dividend.

    Without `fmod` the divisor is added where the signs of rest and divisor differ.

    Refuses floats, of which the rest is exact and the quotient is not, and uint64.
    """
    view = NodeView(node, context.opset_of(node))
    a, b = view.required("A"), view.required("B")
    dtype = element_type(a, "Mod", 10)
    if not dtype.is_integer() or dtype == _D.UINT64:
        raise Refusal("element-type", f"Mod of {dtype.name} needs opset 10", lowest_opset=10)
    a, b = cast(em, a, _INT64), cast(em, b, _INT64)
    rest = em.op("Sub", a, em.op("Mul", em.op("Div", a, b, hint="quotient"), b), hint="rest")
    if not view.integer("fmod"):
        signs = em.op("Mul", em.op("Sign", rest), em.op("Sign", b), hint="signs")
        zero = em.constant(0, "zero")
        differ = em.op("Less", signs, zero, dtype=_BOOL, hint="signs_differ")
        rest = em.op("Add", rest, em.op("Mul", cast(em, differ, _INT64), b), hint="rest")
    return Replacement((cast(em, rest, dtype),))


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
    """Multiply the distance from the zero point, in int32, with the scale."""
    view = NodeView(node, context.opset_of(node))
    distance = _distance(em, view.required("x"), view.input("x_zero_point"))
    wide = cast(em, distance, _FLOAT)
    return Replacement((em.op("Mul", wide, view.required("x_scale"), dtype=_FLOAT),))


def lower_quantize_linear_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Round the quotient to the nearest even number, add the zero point and clip to the type."""
    view = NodeView(node, context.opset_of(node))
    x, zero_point = view.required("x"), view.input("y_zero_point")
    dtype = _D.UINT8 if zero_point is None else element_type(zero_point, "QuantizeLinear", 10)
    wide = cast(em, x, _FLOAT)
    quotient = em.op("Div", wide, view.required("y_scale"), dtype=_FLOAT, hint="quotient")
    result = rounded(em, quotient, _FLOAT)
    if zero_point is not None:
        result = em.op("Add", result, cast(em, zero_point, _FLOAT), dtype=_FLOAT)
    limits = {"min": float(dtype.min), "max": float(dtype.max)}
    result = em.op("Clip", result, attributes=limits, dtype=_FLOAT)
    return Replacement((cast(em, result, dtype),))


def lower_mat_mul_integer_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Multiply the distances from the zero points, in int32.

    A zero point of several numbers is one for each row of A, or column of B.
    """
    view = NodeView(node, context.opset_of(node))
    a, b = view.required("A"), view.required("B")
    of_a, of_b = view.input("a_zero_point"), view.input("b_zero_point")
    if of_a is not None and len(known_rank(of_a, "MatMulInteger", 10)) == 1:
        of_a = em.op("Unsqueeze", of_a, attributes={"axes": [1]}, dtype=of_a.dtype or _D.UNDEFINED)
    left, right = _distance(em, a, of_a), _distance(em, b, of_b)
    return Replacement((em.op("MatMul", left, right, dtype=_INT32),))


def _distance(em: Emitter, value: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    wide = cast(em, value, _INT32)
    if zero_point is None:
        return wide
    return em.op("Sub", wide, cast(em, zero_point, _INT32), dtype=_INT32, hint="distance")
