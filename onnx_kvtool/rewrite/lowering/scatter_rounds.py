"""Updates of places that may be named twice, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import reduce, where
from onnx_kvtool.ops.element_type import FLOAT_TYPES

__all__ = ["reduced", "scattered_in_rounds"]

_ELEMENTWISE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_BOOL, _DOUBLE = ir.DataType.BOOL, ir.DataType.DOUBLE


def reduced(em: Emitter, reduction: str, present: ir.Value, updates: ir.Value) -> ir.Value:
    """Return what stands at places combined with one update of each, of one shape."""
    dtype = present.dtype or ir.DataType.UNDEFINED
    if reduction in ("max", "min") and em.opset < 12 and dtype not in FLOAT_TYPES:
        order = "Greater" if reduction == "max" else "Less"  # Max of integers came with opset 12
        is_kept = em.op(order, present, updates, dtype=_BOOL)
        return where(em, is_kept, present, updates)
    return em.op(_ELEMENTWISE[reduction], present, updates, dtype=dtype)


def scattered_in_rounds(
    em: Emitter,
    reduction: str,
    data: ir.Value,
    places: ir.Value,
    updates: ir.Value,
    sizes: Sequence[ir.Value],
    count: int | None,
) -> ir.Value:
    """Combine the places of `data` with updates, in the order of the updates.

    Args:
        em: Where to build.
        reduction: `add`, `mul`, `max` or `min`.
        data: (D1, ..., Dr).
        places: (n, q), int64; negative ones count from the end.
        updates: (n, D(q+1), ..., Dr).
        sizes: The first q sizes of `data`: (), int64.
        count: n, where it is known.

    Returns:
        A value of the shape and type of `data`.
    """
    dtype = data.dtype or ir.DataType.UNDEFINED
    if count == 0:
        return em.op("Identity", data, dtype=dtype)
    order, number = _numbered(em, places, sizes, count)
    none = em.constant([-1], "none")
    numbers = em.op("Concat", number, none, attributes={"axis": 0}, hint="numbers")
    last = reduce(em, "ReduceMax", numbers, [0], keepdims=False)
    rounds = em.op("Add", last, em.constant(1), hint="rounds")
    fresh = em.scope.names.fresh
    turn = ir.Value(name=fresh("round"), type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    goes = ir.Value(name=fresh("goes_on"), type=ir.TensorType(_BOOL), shape=ir.Shape([]))
    state = ir.Value(
        name=fresh("scattered"),
        type=ir.TensorType(dtype),
        shape=None if data.shape is None else ir.Shape(data.shape),
    )

    def one_round() -> list[ir.Value]:
        due = em.op("Equal", number, turn, dtype=_BOOL, hint="due")
        ids = em.op("Gather", order, _flat(em, em.op("NonZero", due)), hint="updates")
        rows = em.op("Gather", places, ids, hint="places")
        given = em.op("Gather", updates, ids, dtype=dtype, hint="given")
        present = em.op("GatherND", state, rows, dtype=dtype, hint="present")
        combined = reduced(em, reduction, present, given)
        after = em.op("ScatterND", state, rows, combined, dtype=dtype, hint="scattered")
        return [em.op("Identity", goes, dtype=_BOOL), after]

    body = em.nested(one_round, [turn, goes, state], hint="rounds")
    goes_on = em.constant(np.array(True), "goes_on")
    result = em.op("Loop", rounds, goes_on, data, attributes={"body": body}, dtype=dtype)
    result.shape = None if data.shape is None else ir.Shape(data.shape)
    return result


def _numbered(
    em: Emitter, places: ir.Value, sizes: Sequence[ir.Value], count: int | None
) -> tuple[ir.Value, ir.Value]:
    """Return the updates sorted by place, and which update of its place each of them is.

    TopK puts equal places in the order of their updates.

    Returns:
        (n,) and (n,), int64: positions among the updates; 0 for the first of a place.
    """
    zero, key = em.constant(0), None
    for column, size in enumerate(sizes):
        index = em.constant(column, "column")
        one = em.op("Gather", places, index, attributes={"axis": 1}, hint="column")
        is_negative = em.op("Less", one, zero, dtype=_BOOL)
        counted = where(em, is_negative, em.op("Add", one, size), one)
        key = counted if key is None else em.op("Add", em.op("Mul", key, size), counted)
    assert key is not None
    if not em.branches:  # below opset 11 TopK takes floats only; no tensor is beyond float64
        key = em.op("Cast", key, attributes={"to": ir.DataType.DOUBLE.value}, dtype=_DOUBLE)
    if count is None:
        length = em.op("Shape", key, hint="count")  # (1,)
        whole = em.op("Reshape", length, em.constant([], "scalar"))
        everyone = em.op("Range", zero, whole, em.constant(1), hint="everyone")
    else:
        length, everyone = em.constant([count]), em.constant(np.arange(count), "everyone")
    dtype = key.dtype or ir.DataType.INT64
    by_place, order = em.multi(
        "TopK",
        key,
        length,
        attributes={"axis": 0, "largest": 0},
        dtypes=[dtype, ir.DataType.INT64],
    )
    # Places are not negative, so that the first one differs from what stands before it.
    none = em.constant(np.array([-1], dtype.numpy()), "none")
    shifted = em.op("Concat", none, by_place, attributes={"axis": 0}, dtype=dtype, hint="shifted")
    ends = (em.constant([end]) for end in (0, -1, 0))
    before = em.op("Slice", shifted, *ends, dtype=dtype, hint="before")
    is_same = em.op("Equal", by_place, before, dtype=_BOOL, hint="is_same")
    is_first = em.op("Not", is_same, dtype=_BOOL, hint="is_first")
    marks = em.op("Cast", is_first, attributes={"to": ir.DataType.INT64.value}, hint="marks")
    run = em.op("Sub", em.op("CumSum", marks, zero), em.constant(1), hint="run")
    firsts = _flat(em, em.op("NonZero", is_first))
    return order, em.op("Sub", everyone, em.op("Gather", firsts, run), hint="number")


def _flat(em: Emitter, value: ir.Value) -> ir.Value:
    return em.op("Reshape", value, em.constant([-1], "flat"))
