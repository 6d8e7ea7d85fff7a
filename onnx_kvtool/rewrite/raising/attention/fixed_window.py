"""Attention over windows with fixed sizes: steps of a fixed number of tokens.

    K = [the L - 1 rows that the step overwrites, or that it never writes, but that its first tokens
         still see; the cache as it lies after the step]                             (B, KV, C, D)

with C = W + L - 1: each of the keys that the source may read stands in one of these rows, whatever
the position is, and a mask says which, computed from the position and the number of the row. With
one token these are the rows of the cache.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.masks import MaskFunction
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.rewrite.raising.attention.fixed_mask import Columns, emit_mask_of
from onnx_kvtool.rewrite.raising.stage import WindowRead

__all__ = ["all_rows", "window_mask"]


def all_rows(read: WindowRead, length: int, em: Emitter) -> ir.Value:
    """Return all rows that a step of `length` tokens may read, (B, KV, W + L - 1, D)."""
    if length == 1:
        return read.present
    dtype = read.present.dtype or ir.DataType.UNDEFINED
    axis = {"axis": read.axis}
    before = min(length, read.capacity) - 1

    def overwritten() -> ir.Value:
        offsets = np.arange(before, dtype=np.int64) + 1 - read.capacity
        positions = em.op("Add", read.length, em.constant(offsets, "before"), hint="positions")
        return em.op("Mod", positions, em.constant([read.capacity]), hint="overwritten")

    places = em.once(("overwritten", read.capacity, before, read.length), overwritten)
    past = read.gather.inputs[0]
    parts = [em.op("Gather", past, places, attributes=axis, dtype=dtype, hint="overwritten")]
    if length > read.capacity:  # new rows that the cache holds no more after the step
        limits = ([0], [length - read.capacity], [read.axis])
        cut = [em.constant(numbers) for numbers in limits]
        parts.append(em.op("Slice", read.new, *cut, dtype=dtype, hint="passing"))
    return em.op("Concat", *parts, read.present, attributes=axis, dtype=dtype, hint="rows")


def window_mask(
    read: WindowRead, length: int, found: MaskFunction | None, dtype: ir.DataType, em: Emitter
) -> ir.Value:
    """Return the mask over these rows, (B or 1, 1, L, C); it is made once for all layers.

    Args:
        read: A window.
        length: New rows, L.
        found: Which keys are shown in the source; None for all.
        dtype: Type of the mask, bool or that of the scores.
        em: Where to build.
    """

    def build() -> ir.Value:
        positions = _positions(read, length, em)
        before = em.constant([read.capacity - 1], "most")
        past = em.op("Min", read.length, before, hint="rows_kept")
        # The first key of the source is the oldest row that it keeps.
        first = em.op("Sub", read.length, past, hint="oldest")
        keys = em.op("Sub", positions, first, hint="keys")
        zero = em.constant([0], "zero")
        boolean = ir.DataType.BOOL
        return emit_mask_of(
            found,
            dtype,
            Columns(
                keys,
                em.constant(np.arange(length, dtype=np.int64)[:, None], "queries"),
                past,
                em.op("GreaterOrEqual", positions, zero, dtype=boolean, hint="in_use"),
                (length, read.capacity + length - 1),
                em.op("Max", keys, zero, hint="columns"),
            ),
            em,
        )

    return em.once(("window mask", found, dtype, read.capacity, length, read.length), build)


def _positions(read: WindowRead, length: int, em: Emitter) -> ir.Value:
    """Return the position of the token of each row, below 0 where there is none: (C,), int64."""
    size = em.constant([read.capacity])
    slots = em.constant(np.arange(read.capacity, dtype=np.int64), "slots")
    last = em.op("Add", read.length, em.constant([length - 1], "last"), hint="last")
    back = em.op("Mod", em.op("Sub", last, slots), size, hint="back")
    positions = em.op("Sub", last, back, hint="positions")
    if length == 1:
        return positions
    offsets = np.arange(1, length, dtype=np.int64) - read.capacity
    rest = em.op("Add", read.length, em.constant(offsets, "before"), hint="positions")
    return em.op("Concat", rest, positions, attributes={"axis": 0}, hint="positions")
