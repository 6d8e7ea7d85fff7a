"""Identity-14 of sequences, for opsets 11 to 13."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_identity_14", "passed"]


def lower_identity_14(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement | None:
    """Insert an element behind the last one and erase it again.

    Nothing is done for other types.
    """
    given = NodeView(node, context.opset_of(node)).required("input")
    if not isinstance(given.type, ir.SequenceType):
        return None
    return Replacement((passed(em, given),))


def passed(em: Emitter, value: ir.Value) -> ir.Value:
    """Return a tensor or a sequence under another name."""
    dtype = value.dtype or ir.DataType.UNDEFINED
    if em.opset >= 14 or not isinstance(value.type, ir.SequenceType):
        result = em.op("Identity", value, dtype=dtype)
    else:
        filling = "" if dtype == ir.DataType.STRING else 0
        element = em.constant(np.array(filling, dtype.numpy()), "element")
        longer = em.op("SequenceInsert", value, element, dtype=dtype, hint="inserted")
        longer.type = value.type
        result = em.op("SequenceErase", longer, dtype=dtype, hint="erased")
    result.type = value.type
    return result
