"""Slice-1, for opsets from 10 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again, fixed

__all__ = ["upgrade_slice_10"]


def upgrade_slice_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give starts, ends and axes as inputs: (n,), int64."""
    view = NodeView(node, context.opset_of(node))
    inputs: list[ir.Value | None] = [view.required("data")]
    for name in ("starts", "ends", "axes"):
        numbers = view.attribute(name)
        if isinstance(numbers, tuple):
            inputs.append(fixed([int(number) for number in numbers], em, name))
        elif name != "axes":
            raise MalformedNode("attribute", f"attribute `{name}` of Slice is required and absent")
    return again(em, node, inputs, without=("starts", "ends", "axes"))
