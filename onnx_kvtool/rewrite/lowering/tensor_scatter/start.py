"""Where each batch row starts to write, as a value that fails where TensorScatter fails."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.rewrite.engine.emit import Emitter

__all__ = ["OUTSIDE", "checked_start", "checked_start_int32", "outside_where_negative"]

OUTSIDE = 2**30
"""A row beyond every cache. Not larger, because some runtimes narrow int64 to int32."""

_LARGEST = np.iinfo(np.int64).max


def checked_start(
    em: Emitter, starts: ir.Value, rows: ir.Value, width: int, fixed: ir.Value
) -> ir.Value:
    """Put each row behind `width - 1` other coordinates, and outside where its start is negative.

    A negative index would count from the end in ScatterND; TensorScatter demands that it fails.

    Args:
        em: Where to build.
        starts: (B, 1, ..., 1), int64.
        rows: (B, 1, ..., L, 1), or as `starts`: what is written of a start that may be, such as
            the start itself or its remainder.
        width: Number of coordinates in an index tuple.
        fixed: (..., width), broadcast with `rows`: the other coordinates, and `OUTSIDE` last.

    Returns:
        `fixed` with its last coordinate replaced by the row where the start is not negative. Two
        nodes.
    """
    # No start is above the largest integer: so one comparison tells the coordinates apart and
    # judges the start.
    limits = np.full(width, _LARGEST, np.int64)
    limits[-1] = -1
    is_row = em.op(
        "Less", em.constant(limits, "limits"), starts, dtype=ir.DataType.BOOL, hint="is_row"
    )
    return em.op("Where", is_row, rows, fixed, hint="start")


def outside_where_negative(em: Emitter, starts: ir.Value, rows: ir.Value) -> ir.Value:
    """Return rows, each at `OUTSIDE` where its start is negative; the two are broadcast.

    For a circular cache, in which a remainder would bring it back.
    """
    zero = em.constant(0, "zero")
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
