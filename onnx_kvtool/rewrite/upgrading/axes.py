"""Squeeze, Unsqueeze and the reductions, whose axes became an input."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.refusal import Refusal
from onnx_kvtool.rewrite.upgrading.forms import again, fixed

__all__ = ["upgrade_axes_13_18"]


def upgrade_axes_13_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the axes as an input: (n,), int64.

    It came with opset 13 for Squeeze, Unsqueeze and ReduceSum, with 18 for the other reductions.
    An empty list of a reduction means all axes in every version and is left out.

    Refuses an empty list of Squeeze: releases differ on whether it drops no dimension or each one
    of size 1.
    """
    view = NodeView(node, context.opset_of(node))
    data, axes = view.required("data"), view.attribute("axes")
    if not isinstance(axes, tuple):
        return again(em, node, [data])
    numbers = [int(axis) for axis in axes]
    if not numbers and node.op_type == "Squeeze":
        raise Refusal("empty-axes", "runtimes differ on what an empty list of axes means")
    if not numbers and node.op_type != "Unsqueeze":
        return again(em, node, [data], without=("axes",))
    return again(em, node, [data, fixed(numbers, em, "axes")], without=("axes",))
