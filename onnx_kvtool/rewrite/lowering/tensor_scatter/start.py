"""Where each batch row starts to write, as a value that fails where TensorScatter fails."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter

__all__ = ["OUTSIDE", "checked_start_int32", "outside_where_negative", "row_or_outside"]

OUTSIDE = 2**30
"""A row beyond every cache. Not larger, because some runtimes narrow int64 to int32."""

_LARGEST = 2**31 - 1
"""No size reaches it, and readers that narrow int64 to int32 keep it."""


def row_or_outside(
    em: Emitter, start: ir.Value, row: ir.Value, outside: ir.Value, width: int, *, wraps: bool
) -> ir.Value:
    """Return index tuples of one sequence with its row, or as they are where its start is negative.

    Args:
        em: Where to build.
        start: One number, int64.
        row: One number: what is written of a start that may be, such as the start itself or its
            remainder.
        outside: (1, ..., k), of rank k + 1: the other coordinates, and `OUTSIDE` last.
        width: k.
        wraps: Whether a start may be larger than every size.

    Returns:
        As `outside`. Two nodes; three where it wraps.
    """
    shape = (*[1] * width, width)
    bool_ = ir.DataType.BOOL
    if wraps:
        is_last = np.zeros(shape, np.bool_)
        is_last[..., -1] = True
        before = em.constant([-1], "before")
        legal = em.op("Less", before, start, dtype=bool_, hint="is_legal")
        is_row = em.op("And", em.constant(is_last, "last"), legal, dtype=bool_, hint="is_row")
    else:
        # One comparison tells the coordinates apart and judges the start. One that is larger than
        # the limit becomes every coordinate, and is outside in each.
        limits = np.full(shape, _LARGEST, np.int64)
        limits[..., -1] = -1
        is_row = em.op("Less", em.constant(limits, "limits"), start, dtype=bool_, hint="is_row")
    return em.op("Where", is_row, row, outside, hint="start")


def outside_where_negative(em: Emitter, starts: ir.Value, rows: ir.Value, rank: int) -> ir.Value:
    """Return rows, each at `OUTSIDE` where its start is negative.

    A negative index would count from the end in ScatterND, and a remainder would bring it back into
    a circular cache; TensorScatter demands that it fails.

    Args:
        em: Where to build.
        starts: (B, 1, ..., 1), or (1,) for one sequence, int64.
        rows: (B, 1, ..., L or 1, ..., 1): what is written of a start that may be, such as the start
            itself or its remainder.
        rank: Rank of the rows.

    Returns:
        As `rows`. Two nodes.
    """
    zero = em.constant(np.zeros([1] * rank, np.int64), "zero")
    negative = em.op("Less", starts, zero, dtype=ir.DataType.BOOL, hint="is_negative")
    return em.op("Where", negative, em.constant(OUTSIDE, "outside"), rows, hint="row")


def checked_start_int32(em: Emitter, starts: ir.Value) -> ir.Value:
    """Return `starts` with everything outside [0, `OUTSIDE`) replaced by `OUTSIDE`.

    For indices that are narrowed to int32 or read by a runtime that must not see an index below
    -S (OpenVINO 2026.4.1 crashes on one in ScatterElements): no start wraps on the way.
    """
    outside = em.constant(OUTSIDE, "outside")
    inside = em.op("Mod", starts, outside, hint="start_mod")
    same = em.op("Equal", inside, starts, dtype=ir.DataType.BOOL, hint="start_is_legal")
    return em.op("Where", same, starts, outside, hint="start")
