"""Softmax, LogSoftmax and Hardmax of version 1 and 11, for opsets from 13 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.lowering.reshape import never_empty, reshape_literally
from onnx_kvtool.rewrite.upgrading.forms import again
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["upgrade_softmax_13"]


def upgrade_softmax_13(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Flatten the input at `axis` and reshape the result, as the operator does itself below 13.

    On the last axis both versions mean the same; it is written out, since the default differs.
    """
    view = NodeView(node, context.opset_of(node))
    data, axis, dims = view.required("input"), view.integer("axis"), dims_of(view.required("input"))
    if dims is not None and not -len(dims) <= axis < max(len(dims), 1):
        raise MalformedNode("axis-out-of-range", f"`axis` is {axis} for a rank of {len(dims)}")
    if axis == -1 or (dims is not None and axis == len(dims) - 1):
        return again(em, node, [data], attributes={"axis": axis})
    dtype = data.dtype or ir.DataType.UNDEFINED
    flat = em.op("Flatten", data, attributes={"axis": axis}, dtype=dtype)
    along = again(em, node, [flat], attributes={"axis": -1}).outputs[0]
    if along is None:
        raise MalformedNode("output", f"`{node.op_type}` has no output")
    along.shape = None
    shape = em.op("Shape", data)
    return Replacement((reshape_literally(em, along, shape, empty=not never_empty(data)),))
