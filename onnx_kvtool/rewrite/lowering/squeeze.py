"""Squeeze-13 and Unsqueeze-13 with axes that are known at run time only, for opsets below 13."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.reshape import never_empty, reshape_literally
from onnx_kvtool.rewrite.lowering.run_time_axes import axis_marks, count_of
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_squeeze_13", "lower_unsqueeze_13"]

_BOOL = ir.DataType.BOOL


def lower_squeeze_13(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Reshape to the sizes of the axes that are not named.

    Refuses an unknown rank, and axes whose number is unknown or zero: releases differ on whether
    an empty list drops nothing or every dimension of size 1.
    """
    view = NodeView(node, context.opset_of(node))
    data, axes = view.required("data"), view.input("axes")
    rank, count = _facts(data, axes)
    if axes is None or count == 0:
        raise Refusal("empty-axes", "an empty list of axes cannot be an attribute", lowest_opset=13)
    kept = em.op("Equal", axis_marks(em, axes, rank), em.constant(0, "zero"), dtype=_BOOL)
    shape = em.op("Compress", em.op("Shape", data), kept, attributes={"axis": 0})
    return Replacement((reshape_literally(em, data, shape, empty=not never_empty(data)),))


def lower_unsqueeze_13(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Reshape to the sizes of the data with ones between them.

    Each place of the result that is not named takes the next size of the data: its number is the
    count of such places before it.

    Refuses an unknown rank and an unknown number of axes.
    """
    view = NodeView(node, context.opset_of(node))
    data, axes = view.required("data"), view.required("axes")
    rank, count = _facts(data, axes)
    if count == 0:
        return Replacement((em.op("Identity", data, dtype=_dtype(data)),))
    if rank == 0:
        shape = em.constant([1] * count, "ones")
        return Replacement((em.op("Reshape", data, shape, dtype=_dtype(data)),))
    marks = axis_marks(em, axes, rank + count)  # (rank + count,)
    kept = em.op("Sub", em.constant(1, "one"), marks)
    before = em.op("CumSum", kept, em.constant(0, "axis"), attributes={"exclusive": 1})
    # The number past the last size is read at named places only, where it does not matter.
    last = em.constant(rank - 1, "last")
    inside = em.op("Less", before, last, dtype=_BOOL)
    sizes = em.op("Gather", em.op("Shape", data), em.op("Where", inside, before, last))
    named = em.op("Cast", marks, attributes={"to": _BOOL.value}, dtype=_BOOL)
    shape = em.op("Where", named, em.constant(1, "one"), sizes)
    return Replacement((reshape_literally(em, data, shape, empty=not never_empty(data)),))


def _facts(data: ir.Value, axes: ir.Value | None) -> tuple[int, int]:
    """Return the rank of the data and the number of axes."""
    dims = dims_of(data)
    count = None if axes is None else count_of(axes)
    if dims is None or (axes is not None and count is None):
        what = f"the rank of `{data.name}`" if dims is None else "their number"
        raise Refusal(
            "dynamic-input",
            f"the axes are known at run time only, and {what} is unknown",
            help="make the axes constant, or declare the shapes",
            lowest_opset=13,
        )
    return len(dims), count or 0


def _dtype(value: ir.Value) -> ir.DataType:
    return value.dtype or ir.DataType.UNDEFINED
