"""DFT-17, for opsets from 20 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again, fixed

__all__ = ["upgrade_dft_20"]


def upgrade_dft_20(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the axis as an input: (), int64; 1 where version 17 left it out, and 20 takes -2."""
    view = NodeView(node, context.opset_of(node))
    axis = fixed(view.integer("axis"), em, "axis")
    inputs = [view.required("input"), view.input("dft_length"), axis]
    return again(em, node, inputs, without=("axis",))
