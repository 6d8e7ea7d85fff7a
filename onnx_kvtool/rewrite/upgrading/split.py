"""Split-2, -11 and -13, for opsets from 13 and from 18 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.upgrading.forms import again, fixed

__all__ = ["upgrade_split_13_18"]


def upgrade_split_13_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the sizes as an input, (outputs,), int64; without sizes, the number of equal parts."""
    view = NodeView(node, context.opset_of(node))
    data = view.required("input")
    sizes = view.attribute("split") if "split" in view.facts.attributes else None
    lengths = view.input("split") if len(view.facts.inputs) > 1 else None
    if isinstance(sizes, tuple) and sizes:
        lengths = fixed([int(size) for size in sizes], em, "split")
    if lengths is not None:
        return again(em, node, [data, lengths], without=("split",))
    parts = {"num_outputs": len(node.outputs)} if em.opset >= 18 else {}
    return again(em, node, [data], without=("split",), attributes=parts)
