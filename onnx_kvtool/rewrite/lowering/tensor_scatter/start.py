"""Where each batch row starts to write, as a value that fails where TensorScatter fails."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.rewrite.emit import Emitter

__all__ = [
    "BEYOND",
    "OUTSIDE",
    "Start",
    "checked_start",
    "checked_start_int32",
    "outside_where_negative",
]

OUTSIDE = 2**30
"""A row beyond every cache. Not larger, because some runtimes narrow int64 to int32."""

BEYOND = 2**31 - 1
"""A modulus that leaves `OUTSIDE` and the rows behind it where they are."""

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Start:
    """A checked start in its place among the coordinates.

    Attributes:
        value: (B, 1, ..., 1, width).
        is_fixed: The same shape: true but where the start is written and may be.
    """

    value: ir.Value
    is_fixed: ir.Value


def checked_start(
    em: Emitter,
    starts: ir.Value,
    width: int,
    fixed: ir.Value,
    *,
    wrapped: ir.Value | None = None,
) -> Start:
    """Put each start behind `width - 1` other coordinates, and negative ones outside the cache.

    A negative index would count from the end in ScatterND; TensorScatter demands that it fails.

    Args:
        em: Where to build.
        starts: (B, 1, ..., 1), int64.
        width: Number of coordinates in an index tuple.
        fixed: (..., width), broadcast with `starts`: the other coordinates, and `OUTSIDE` last.
        wrapped: The starts modulo the size of a circular cache; None for those of a linear one.

    Returns:
        `fixed` with its last coordinate replaced by the start where that is not negative. Two
        nodes, on one number per batch row.
    """
    # Less than the largest integer is true for every start but that one, which is outside the
    # cache anyway: so one comparison selects the fixed coordinates and judges the start.
    limits = np.full(width, _LARGEST, np.int64)
    limits[-1] = 0
    is_fixed = em.op(
        "Less", starts, em.constant(limits, "limits"), dtype=ir.DataType.BOOL, hint="is_fixed"
    )
    placed = starts if wrapped is None else wrapped
    return Start(em.op("Where", is_fixed, fixed, placed, hint="start"), is_fixed)


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
