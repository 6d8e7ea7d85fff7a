"""Softmax-13, LogSoftmax-13 and Hardmax-13, for opsets below 13."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_softmax_13"]


def lower_softmax_13(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Work on the last axis, where both versions mean the same, with Transposes around if needed.

    Below 13 the operator flattens its input to two dimensions at `axis`; from 13 on it works along
    the one axis. On the last axis the results are equal.

    Refuses an axis that is not the last one for certain when the rank is unknown.
    """
    view = NodeView(node, context.opset_of(node))
    data, axis = view.required("input"), view.integer("axis")
    dtype = data.dtype or ir.DataType.UNDEFINED
    rank = None if data.shape is None else len(data.shape)
    if axis == -1 or (rank is not None and axis == rank - 1):
        return Replacement((em.op(node.op_type, data, attributes={"axis": -1}, dtype=dtype),))
    if rank is None:
        raise Refusal(
            "unknown-rank",
            f"`axis` is {axis} and the rank of `{data.name}` is unknown",
            help="declare the shape of the input",
        )
    if not -rank <= axis < rank:
        raise MalformedNode("axis-out-of-range", f"`axis` is {axis} for a rank of {rank}")
    swap = list(range(rank))
    swap[axis % rank], swap[-1] = swap[-1], swap[axis % rank]
    turned = em.op("Transpose", data, attributes={"perm": swap}, dtype=dtype, hint="to_last")
    result = em.op(node.op_type, turned, attributes={"axis": -1}, dtype=dtype)
    back = em.op("Transpose", result, attributes={"perm": swap}, dtype=dtype, hint="from_last")
    return Replacement((back,))
