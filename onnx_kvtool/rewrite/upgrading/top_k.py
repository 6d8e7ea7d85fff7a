"""TopK-1, for opsets from 10 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again, fixed

__all__ = ["upgrade_top_k_10"]


def upgrade_top_k_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give `k` as an input: (1,), int64."""
    view = NodeView(node, context.opset_of(node))
    count = fixed([view.integer("k")], em, "k")
    return again(em, node, [view.required("X"), count], without=("k",))
