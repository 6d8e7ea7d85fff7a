"""Dropout-7 and -10, for opsets from 10 and from 12 on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.refusal import Refusal
from onnx_kvtool.rewrite.upgrading.forms import again

__all__ = ["upgrade_dropout_10_12"]


def upgrade_dropout_10_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the ratio as an input: (), float32. Without `training_mode` the data passes through.

    Refuses a mask that is read: no text before opset 12 says what it holds in inference.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("data")
    if any(o.name and (o.uses() or o.is_graph_output()) for o in node.outputs[1:]):
        raise Refusal(
            "changed-meaning",
            "the mask is read, and what it holds in inference is not defined before opset 12",
            help="export the model for inference",
        )
    if em.opset < 12:
        return again(em, node, [data], outputs=1)
    ratio = em.constant(np.asarray(view.attribute("ratio"), np.float32), "ratio")
    return again(em, node, [data, ratio], without=("ratio",), outputs=1)
