"""Pad-2, for opsets from 11 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again, fixed, number_like

__all__ = ["upgrade_pad_11"]


def upgrade_pad_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the pads, (2 * rank,), and a value other than zero, (), as inputs."""
    view = NodeView(node, context.opset_of(node))
    data, pads, value = view.required("data"), view.attribute("pads"), view.attribute("value")
    assert isinstance(pads, tuple) and isinstance(value, float)
    inputs = [data, fixed([int(pad) for pad in pads], em, "pads")]
    if value != 0.0 and view.string("mode") == "constant":
        inputs.append(number_like(em, value, data, "pad_value"))
    return again(em, node, inputs, without=("pads", "value"))
