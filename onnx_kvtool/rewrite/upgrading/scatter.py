"""Scatter-9, for opsets from 11 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again

__all__ = ["upgrade_scatter_11"]


def upgrade_scatter_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Call it ScatterElements; inputs and attributes are the same."""
    return again(em, node, list(node.inputs), op_type="ScatterElements")
