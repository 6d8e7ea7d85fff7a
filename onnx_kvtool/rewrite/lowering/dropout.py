"""Dropout-12, for opset 11."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement
from onnx_kvtool.rewrite.lowering.resize_tables import constant_floats

__all__ = ["lower_dropout_12"]


def lower_dropout_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write a Dropout that drops nothing as an Identity with a mask of true.

    Refuses `training_mode` unless it, or the ratio, is a constant zero: Dropout-10 only infers, and
    nobody says which numbers are drawn from a seed.
    """
    view = NodeView(node, context.opset_of(node))
    data, training = view.required("data"), view.input("training_mode")
    known = context.folder.integers(training)
    ratio = constant_floats(view.input("ratio"))
    drops = ratio is None or bool(ratio.any())
    if drops and training is not None and (known is None or known.any()):
        raise Refusal(
            "training-mode",
            "`training_mode` may be true, and Dropout knows inference only before opset 12",
            help="export the model for inference, with `training_mode` constant",
            lowest_opset=12,
        )
    kept = em.op("Identity", data, dtype=data.dtype or ir.DataType.UNDEFINED)
    if len(node.outputs) < 2 or not node.outputs[1].name:
        return Replacement((kept, None)[: len(node.outputs)])
    true = ir.tensor(np.ones(1, np.bool_))
    mask = em.op(
        "ConstantOfShape",
        em.op("Shape", data),
        attributes={"value": true},
        dtype=ir.DataType.BOOL,
        hint="mask",
    )
    return Replacement((kept, mask))
