"""Trilu-14, for opsets below 14."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import positions
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_trilu_14"]

_BOOL = ir.DataType.BOOL


def lower_trilu_14(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Choose between the input and zero by comparing columns with rows.

    upper: kept where column >= row + k;   lower: kept where column <= row + k

    Refuses strings and complex numbers, which have no zero to choose.
    """
    view = NodeView(node, context.opset_of(node))
    data, k, upper = view.required("input"), view.input("k"), view.integer("upper") != 0
    dtype = data.dtype or ir.DataType.UNDEFINED
    dims = dims_of(data)
    if dims is not None and len(dims) < 2:
        raise MalformedNode("bad-rank", f"Trilu takes matrices, `{data.name}` has rank {len(dims)}")
    rows = None if dims is None else dims[-2]
    columns = None if dims is None else dims[-1]
    rank = 2 if dims is None else len(dims)
    row = positions(em, rows, data, -2, place=rank - 2, rank=rank)  # (1, ..., R, 1)
    column = positions(em, columns, data, -1, place=rank - 1, rank=rank)  # (1, ..., 1, C)
    if k is not None:
        row = em.op("Add", row, em.op("Reshape", k, em.constant([1], "one")))
    outside = em.op("Less" if upper else "Greater", column, row, dtype=_BOOL)  # (1, ..., R, C)
    if dtype == _BOOL:
        kept = em.op("Not", outside, dtype=_BOOL)
        return Replacement((em.op("And", kept, data, dtype=_BOOL),))
    if dtype in (ir.DataType.STRING, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        raise Refusal(
            "element-type",
            f"Trilu of {dtype.name} cannot be written before opset 14",
            lowest_opset=14,
        )
    if dtype == ir.DataType.UNDEFINED:
        raise Refusal("unknown-element-type", f"the type of `{data.name}` is unknown")
    zero = em.constant(np.zeros((), dtype.numpy()), "zero")
    return Replacement((where(em, outside, zero, data),))
