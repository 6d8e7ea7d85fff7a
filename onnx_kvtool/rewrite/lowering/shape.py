"""Shape-15 with `start` and `end`, for opsets below 15, and Size for releases without it."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_shape_15", "lower_size"]

_END = 2**31 - 1
"""Beyond every rank; Slice clamps it."""


def lower_shape_15(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Emit Slice(Shape(data), [start], [end]).

    Slice-10 clamps out-of-range ends and counts negative ones from the end exactly as Shape-15
    does with its attributes, and gives an empty result for start >= end.
    """
    view = NodeView(node, context.opset_of(node))
    start, end = view.integer("start"), view.attribute("end")
    last = end if isinstance(end, int) else _END
    shape = em.op("Shape", view.required("data"))
    part = em.op("Slice", shape, em.constant([start], "start"), em.constant([last], "end"))
    return Replacement((part,))


def lower_size(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Emit ReduceProd(Shape(data)), which is 1 for a scalar: the product of nothing."""
    shape = em.op("Shape", NodeView(node, context.opset_of(node)).required("data"))
    return Replacement((em.op("ReduceProd", shape, attributes={"keepdims": 0}),))
