"""Negative axes, which came with opset 11 for most operators that have any."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import again, known_rank

__all__ = ["lower_negative_axes_11"]


def lower_negative_axes_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Count the axes from the front.

    Refuses negative axes of a value whose rank is unknown.
    """
    view = NodeView(node, context.opset_of(node))
    name = "axes" if "axes" in view.facts.attributes else "axis"
    given = view.attribute(name)
    if given is None:
        return again(em, node)
    axes = [int(axis) for axis in (given if isinstance(given, tuple) else (given,))]
    if min(axes, default=0) >= 0:
        return again(em, node)
    data = node.inputs[0]
    assert data is not None
    rank = len(known_rank(data, f"{node.op_type} with a negative axis", 11))
    if node.op_type == "Unsqueeze":
        rank += len(axes)
    front = [counted_axis(axis, rank, name) for axis in axes]
    return again(em, node, attributes={name: front if isinstance(given, tuple) else front[0]})
