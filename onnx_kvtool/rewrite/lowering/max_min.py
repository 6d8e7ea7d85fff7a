"""Max, Min, Clip and Relu of types that older opsets do not take: compared and chosen."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import covers, one_number, one_shape, where
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["bounded", "lower_clip_12", "lower_max_min_12", "lower_relu_14"]

_D = ir.DataType


def lower_max_min_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement | None:
    """Compare and choose, operand by operand: Where(Less(a, b), b, a), both spread to one shape.

    Only for int64 and uint64, which no type holds that Max takes at opset 11; narrower integers
    take the way through a float that holds them.
    """
    values = [value for value in node.inputs if value is not None]
    dtype = values[0].dtype
    if dtype not in (ir.DataType.INT64, ir.DataType.UINT64):
        return None
    result, dims = values[0], dims_of(values[0])
    compare = "Less" if node.op_type == "Max" else "Greater"
    for value in values[1:]:
        beaten = em.op(compare, result, value, dtype=ir.DataType.BOOL)
        others = dims_of(value)
        one, other = one_shape(em, value, result, dims), one_shape(em, result, value, others)
        result = where(em, beaten, one, other)
        dims = dims if covers(dims, others) else others if covers(others, dims) else None
    if len(values) == 1:
        result = em.op("Identity", result, dtype=dtype)
    return Replacement((result,))


def lower_relu_14(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement | None:
    """Choose zero where the input is less: Where(Less(x, 0), 0, x).

    Only for int64, which no type holds that Relu takes below opset 14.
    """
    x = NodeView(node, context.opset_of(node)).required("X")
    if x.dtype != ir.DataType.INT64:
        return None
    zero = em.constant(np.zeros((), np.int64), "zero")
    is_less = em.op("Less", x, zero, dtype=ir.DataType.BOOL)
    return Replacement((where(em, is_less, zero, x),))


def lower_clip_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement | None:
    """Choose the bound where the input is beyond it, first the lower one.

    Only for integers, and for float64, of which onnxruntime has no Clip below opset 12.
    """
    view = NodeView(node, context.opset_of(node))
    x, dtype = view.required("input"), view.required("input").dtype
    if dtype is None or not (dtype.is_integer() or dtype == _D.DOUBLE):
        return None
    return Replacement((bounded(em, x, view.input("min"), view.input("max")),))


def bounded(em: Emitter, x: ir.Value, low: ir.Value | None, high: ir.Value | None) -> ir.Value:
    """Return integers or floats within bounds of one element; what is no number stays."""
    result = x
    for given, compare in ((low, "Less"), (high, "Greater")):
        if given is not None:
            bound = one_number(em, given, x)
            is_beyond = em.op(compare, result, bound, dtype=_D.BOOL, hint="is_beyond")
            result = where(em, is_beyond, bound, result, "bounded")
    return em.op("Identity", x, dtype=x.dtype or _D.UNDEFINED) if result is x else result
