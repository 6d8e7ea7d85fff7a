"""ReverseSequence-10, for opset 9."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import (
    count_up,
    element_type,
    joined_sizes,
    known_rank,
    product,
)

__all__ = ["lower_reverse_sequence_10"]

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


def lower_reverse_sequence_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Gather the rows by their numbers, the first two dimensions made one.

        place = length - 1 - time where that is not negative, else time

    A length beyond the size of the axis names rows behind the last one, and fails.

    Refuses an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data, lengths = view.required("input"), view.required("sequence_lens")
    dtype = element_type(data, "ReverseSequence", 10)
    dims = known_rank(data, "ReverseSequence", 10)
    time_first = view.integer("time_axis") == 0
    time_axis, batch_axis = (0, 1) if time_first else (1, 0)
    count, batch = product(em, data, dims, [time_axis]), product(em, data, dims, [batch_axis])
    along_time, along_batch = ([-1, 1], [1, -1]) if time_first else ([1, -1], [-1, 1])

    def spread(value: ir.Value, shape: list[int]) -> ir.Value:
        return em.op("Reshape", value, em.constant(shape, "shape"))

    time = spread(count_up(em, count), along_time)
    last = em.op("Sub", spread(cast(em, lengths, _INT64), along_batch), em.constant([1], "one"))
    back = em.op("Sub", last, time, hint="back")
    is_behind = em.op("Less", back, em.constant([0], "zero"), dtype=_BOOL)
    more = em.op("Sub", time, back, hint="way")
    place = em.op("Add", back, em.op("Mul", cast(em, is_behind, _INT64), more), hint="place")
    number = spread(count_up(em, batch), along_batch)
    if time_first:
        row = em.op("Add", em.op("Mul", place, batch), number, hint="row")
    else:
        row = em.op("Add", em.op("Mul", number, count), place, hint="row")
    inside = em.op("Less", place, count, dtype=_BOOL)
    outside = cast(em, em.op("Not", inside, dtype=_BOOL), _INT64, hint="is_outside")
    missing = em.op("Sub", product(em, data, dims, [0, 1]), row, hint="missing")
    row = em.op("Add", row, em.op("Mul", outside, missing), hint="row")
    shape = joined_sizes(em, data, dims, [[0, 1], *([axis] for axis in range(2, len(dims)))])
    rows = em.op("Reshape", data, shape, dtype=dtype, hint="rows")
    return Replacement((em.op("Gather", rows, row, attributes={"axis": 0}, dtype=dtype),))
