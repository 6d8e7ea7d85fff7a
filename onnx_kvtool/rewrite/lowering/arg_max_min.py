"""ArgMax-12 and ArgMin-12 with `select_last_index`, for opset 11."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_arg_max_min_12"]

_BEFORE_FIRST = -(2**31)
"""An end before every index, so that a Slice with step -1 takes the first element too."""


def lower_arg_max_min_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Find the first index from behind and count it from the front.

    index = size - 1 - ArgMax(data reversed along the axis)
    """
    view = NodeView(node, context.opset_of(node))
    data, axis = view.required("data"), view.integer("axis")
    attributes = {"axis": axis, "keepdims": view.integer("keepdims")}
    if view.integer("select_last_index") == 0:
        return Replacement((em.op(node.op_type, data, attributes=attributes),))
    dims = dims_of(data)
    dim = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
    step = em.constant([-1], "step")
    start, end = em.constant([-1], "last"), em.constant([_BEFORE_FIRST], "end")
    dtype = data.dtype or ir.DataType.UNDEFINED
    turned = em.op("Slice", data, start, end, em.constant([axis], "axes"), step, dtype=dtype)
    found = em.op(node.op_type, turned, attributes=attributes)
    last = em.op("Sub", size(em, dim, data, axis), em.constant(1, "one"))
    return Replacement((em.op("Sub", last, found, hint="from_front"),))
