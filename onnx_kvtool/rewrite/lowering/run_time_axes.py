"""Axes that are known at run time only: as one flag per axis of a value of known rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["axis_marks", "count_of", "switch"]


def count_of(axes: ir.Value) -> int | None:
    """Return the number of axes in `axes`: (n,); None when the file does not fix it."""
    dims = dims_of(axes)
    if dims is None or len(dims) != 1 or not isinstance(dims[0], int):
        return None
    return dims[0]


def axis_marks(em: Emitter, axes: ir.Value, rank: int) -> ir.Value:
    """Return 1 for each axis that is among `axes`, else 0: (rank,), int64.

    Args:
        em: Where to build.
        axes: (n,) or (), int32 or int64, each in -rank .. rank - 1; n may be 0.
        rank: Rank of the value that the axes belong to, at least 1.
    """
    count = 1 if dims_of(axes) == () else count_of(axes)
    axes = cast(em, axes, ir.DataType.INT64)
    flat = em.op("Reshape", axes, em.constant([-1], "flat"))  # (n,)
    # Mod counts negative axes from the end: its result has the sign of the divisor.
    places = em.op("Mod", flat, em.constant(rank, "rank"))
    if count is None:
        one = ir.tensor(np.ones(1, np.int64))
        ones = em.op("ConstantOfShape", em.op("Shape", places), attributes={"value": one})
    else:
        ones = em.constant([1] * count, "ones")
    zeros = em.constant(np.zeros(rank, np.int64), "zeros")
    return em.op("ScatterElements", zeros, places, ones, hint="marks")


def switch(
    em: Emitter,
    marks: ir.Value,
    axis: int,
    value: ir.Value,
    apply: Callable[[ir.Value], ir.Value],
    *,
    size: int | None = None,
) -> ir.Value:
    """Return `apply(value)` if `axis` is marked, else `value`, decided at run time by an If.

    Where an If cannot, as its branches have to give equal shapes, both are computed, and the one
    that is meant is cut out of them.

    Args:
        em: Where to build.
        marks: 1 for each axis that is marked, else 0: (rank,), int64.
        axis: The axis.
        value: The value.
        apply: What is done with it; the other sizes stay.
        size: The size of the axis then; None where it stays what it is.
    """
    dtype = value.dtype or ir.DataType.UNDEFINED
    if not em.branches:
        return _cut_out(em, marks, axis, value, apply(value), size)
    mark = em.op("Gather", marks, em.constant(axis, "axis"))
    chosen = cast(em, mark, ir.DataType.BOOL)
    marked = em.nested(lambda: [apply(value)], hint="marked")
    unmarked = em.nested(lambda: [value], hint="unmarked")
    bodies = {"then_branch": marked, "else_branch": unmarked}
    result = em.op("If", chosen, attributes=bodies, dtype=dtype)
    if value.shape is not None and marked.outputs[0].shape == value.shape:
        result.shape = ir.Shape(value.shape)
    return result


def _cut_out(
    em: Emitter,
    marks: ir.Value,
    axis: int,
    value: ir.Value,
    other: ir.Value,
    size: int | None,
) -> ir.Value:
    """Return `other` if `axis` is marked, else `value`: rows of one behind the other."""
    dtype = value.dtype or ir.DataType.UNDEFINED
    dims, place = dims_of(value), em.constant([axis], "axis")
    dim = None if dims is None else dims[axis]
    if isinstance(dim, int):
        count = em.constant([dim], "count")
    else:
        after = em.constant([axis + 1], "after")
        count = em.op("Slice", em.op("Shape", value), place, after, hint="count")
    mark = em.op("Gather", marks, place, hint="mark")
    start = em.op("Mul", mark, count, hint="start")
    length = start if size is None else mark
    if size not in (None, 1):
        length = em.op("Mul", mark, em.constant([size or 0], "size"), hint="length")
    both = em.op("Concat", value, other, attributes={"axis": axis}, dtype=dtype, hint="both")
    end = em.op("Add", count, length, hint="end")
    result = em.op("Slice", both, start, end, place, dtype=dtype, hint="chosen")
    if dims is not None:
        result.shape = ir.Shape(
            [None if i == axis and size is not None else d for i, d in enumerate(dims)]
        )
    return result
