"""Operators that convert element types: Cast, CastLike, QuantizeLinear, DequantizeLinear."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.upgrading.forms import again, fixed, number_like

__all__ = ["upgrade_cast_24", "upgrade_dequantize_linear_13", "upgrade_quantize_linear_13_19"]


def upgrade_cast_24(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Turn infinities into NaN first: with `saturate` they became NaN, and now the largest number.

    Cast(Where(IsInf(input), NaN, input))
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("input")
    dtype = data.dtype or ir.DataType.UNDEFINED
    infinite = em.op("IsInf", data, dtype=ir.DataType.BOOL)
    nothing = number_like(em, np.nan, data, "nan")
    finite = em.op("Where", infinite, nothing, data, dtype=dtype)
    return again(em, node, [finite, *node.inputs[1:]])


def upgrade_dequantize_linear_13(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Make scale and zero point scalars, see `upgrade_quantize_linear_13_19`."""
    return again(em, node, [node.inputs[0], *(_scalar(em, value) for value in node.inputs[1:])])


def upgrade_quantize_linear_13_19(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Make scale and zero point scalars, and the input a float where the types must be the same.

    Before opset 13 both are one number, and from then on a value of rank 1 holds one number for
    each index of an axis. At opsets 19 to 22 the scale has the type of the input; an int32 input
    is cast to float32, in which the quotient was taken (onnxruntime 1.31).

    Refuses an unknown input type for these opsets.
    """
    opset = context.opset_of(node)
    view = NodeView(node, opset)
    data, numbers = view.required("x"), list(node.inputs[1:])
    if opset < 13:
        numbers = [_scalar(em, value) for value in numbers]
    if opset < 19 <= em.opset < 23:
        if data.dtype is None:
            raise Refusal("unknown-element-type", f"the type of `{data.name}` is unknown")
        if data.dtype == ir.DataType.INT32:
            data = cast(em, data, ir.DataType.FLOAT)
    return again(em, node, [data, *numbers])


def _scalar(em: Emitter, value: ir.Value | None) -> ir.Value | None:
    if value is None or (value.shape is not None and len(value.shape) == 0):
        return value
    dtype = value.dtype or ir.DataType.UNDEFINED
    return em.op("Reshape", value, fixed([], em, "scalar"), dtype=dtype, hint="scalar")
