"""BatchNormalization-7 and -9, for opsets from 9 and from 14 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.upgrade_changes import further_outputs
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.refusal import Refusal
from onnx_kvtool.rewrite.upgrading.forms import again, number_like

__all__ = ["upgrade_batch_normalization_9_14"]


def upgrade_batch_normalization_9_14(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Write `spatial=0` in plain arithmetic; else leave out what the later version lacks.

    Without `spatial`, scale, bias, mean and variance are (C, D1, ...), one for each element of a
    sample, and Y = (X - mean) / Sqrt(var + epsilon) * scale + B, where the batch broadcasts.

    Refuses further outputs, which are those of a training step.
    """
    opset = context.opset_of(node)
    view = NodeView(node, opset)
    if further_outputs(node):
        raise Refusal(
            "changed-meaning",
            "further outputs are those of a training step, which opset 14 gives in another form",
            help="export the model for inference",
        )
    if "spatial" not in view.facts.attributes or view.integer("spatial") != 0:
        return again(em, node, list(node.inputs), without=("spatial",), outputs=1)
    data, scale, bias = view.required("X"), view.required("scale"), view.required("B")
    mean, variance = view.required("mean"), view.required("var")
    epsilon = view.attribute("epsilon")
    assert isinstance(epsilon, float)
    dtype = data.dtype or ir.DataType.UNDEFINED
    small = number_like(em, epsilon, data, "epsilon")
    deviation = em.op("Sqrt", em.op("Add", variance, small, dtype=dtype), dtype=dtype)
    normal = em.op("Div", em.op("Sub", data, mean, dtype=dtype), deviation, dtype=dtype)
    result = em.op("Add", em.op("Mul", normal, scale, dtype=dtype), bias, dtype=dtype)
    return Replacement((result, *[None] * (len(node.outputs) - 1)))
