"""GridSample-16, for opsets from 20 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again

__all__ = ["upgrade_grid_sample_20"]

_NEW_NAMES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}


def upgrade_grid_sample_20(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the mode the name that holds for any number of spatial dimensions."""
    view = NodeView(node, context.opset_of(node))
    mode = view.string("mode")
    if mode not in _NEW_NAMES:
        raise MalformedNode("attribute-value", f"`mode={mode}` is no mode of GridSample-16")
    return again(em, node, list(node.inputs), attributes={"mode": _NEW_NAMES[mode]})
