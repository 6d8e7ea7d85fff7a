"""Masks and windows of attention written with fixed sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import KEY, QUERY
from onnx_kvtool.analysis.attention.masks import MaskFunction
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import unsqueeze, where
from onnx_kvtool.rewrite.raising.stage import WindowRead
from onnx_kvtool.symbolic.expressions import Coordinate, Expr

# Masks over the rows in use, written for all rows of a cache, with fixed sizes.
#
#     shown[b, i, j] = (j <= i + past) and ... and attention_mask[b, j] != 0
#     mask           = shown                                         where a mask of bools will do
#                    = Where(shown, 0, Where(j < n, hidden, -inf))   else
#
# where n is the number of rows in use, which follows from `past_length`. The input that marks the
# rows with tokens gets as many columns as the cache has rows; columns of rows that are not in use
# have no effect. If rows stand in another order, as in windows, j is the number of the key of each
# row in the source.


FIXED = "onnx_kvtool.fixed_mask"
"""Metadata key of nodes that read an input column by column, during the edit only."""


class Columns(NamedTuple):
    """Numbers of the rows of a cache and of queries; all broadcast to (L, C).

    Attributes:
        keys: The number of the key of each row in the source, (C,).
        queries: The number of each query, (L, 1).
        past: The number of keys before those of the queries in the source, (1,).
        in_use: Whether a row has a key, (C,), bool.
        shape: L and C.
        places: For each row, its column of an input that marks keys, (C,); None if the columns are
            in the order of the rows.
    """

    keys: ir.Value
    queries: ir.Value
    past: ir.Value
    in_use: ir.Value
    shape: tuple[int, int]
    places: ir.Value | None = None


def emit_fixed_mask(
    found: MaskFunction, like: ir.Value, capacity: int, queries: int, count: ir.Value, em: Emitter
) -> ir.Value:
    """Return a mask over all rows of a cache, (B or 1, 1, L, C).

    It is made once for all layers that have it, and has the type of `like`, the mask over the rows
    in use. `count` has the rows in use after the step: (1,), int64.
    """
    dtype = like.dtype
    assert dtype is not None

    def build() -> ir.Value:
        numbers = np.arange(max(capacity, queries), dtype=np.int64)
        keys = em.constant(numbers[:capacity], "keys")
        columns = Columns(
            keys,
            em.constant(numbers[:queries, None], "queries"),
            em.op("Sub", count, [queries], hint="past_rows"),
            em.op("Less", keys, count, hint="in_use"),
            (queries, capacity),
        )
        return emit_mask_of(found, dtype, columns, em)

    return em.once(("fixed mask", found, dtype, capacity, queries, count), build)


def emit_hidden(mask: ir.Value, capacity: int, count: ir.Value, em: Emitter) -> ir.Value:
    """Return a mask that also hides the rows not in use, (B or 1, H or 1, L, C).

    The mask has that shape; its elements for these rows have no meaning. `count` has the rows in
    use after the step: (1,), int64.
    """

    def build() -> ir.Value:
        in_use = em.op("Less", np.arange(capacity, dtype=np.int64), count, hint="in_use")
        if mask.dtype == ir.DataType.BOOL:
            return em.op("And", mask, in_use, hint="is_seen")
        return where(em, in_use, mask, -np.inf, hint="mask")

    return em.once(("hidden columns", mask, capacity, count), build)


def emit_mask_of(
    found: MaskFunction | None, dtype: ir.DataType, columns: Columns, em: Emitter
) -> ir.Value:
    """Return a mask over all rows of a cache, (B or 1, 1, L, C); `found` None shows all keys."""
    target = [1, 1, *columns.shape]
    if found is None:
        return em.op("Expand", columns.in_use, target, hint="is_seen")
    conditions = [_below_zero(one, found, columns, em) for one in found.comparisons]
    hides_unused = any(_is_within_use(one, found) for one in found.comparisons)
    if columns.places is not None or not hides_unused:
        conditions.append(columns.in_use)
    conditions += [_told(value, columns, em) for value in found.inputs]
    shown = conditions[0]
    for condition in conditions[1:]:
        shown = em.op("And", shown, condition, hint="is_seen")
    shown = em.op("Expand", shown, target, hint="is_seen")
    if dtype == ir.DataType.BOOL:
        return shown
    hidden, never = (np.array(number).astype(dtype.numpy()) for number in (found.hidden, -np.inf))
    in_use = em.op("Expand", columns.in_use, target)
    hides = em.op("Where", in_use, hidden, never, hint="hides")
    return where(em, shown, 0.0, hides, hint="mask")


def _told(value: ir.Value, columns: Columns, em: Emitter) -> ir.Value:
    """Return how an input (B, S) marks the key of each row: (B, 1, 1, C), bool."""
    boolean = ir.DataType.BOOL
    other = value
    if value.dtype != boolean:
        other = em.op("Cast", value, to=int(boolean))
    made = [other]
    if columns.places is not None:
        made.append(em.op("Gather", other, columns.places, axis=1))
    made.append(unsqueeze(em, made[-1], [1, 2]))
    for one in made:
        node = one.producer()
        if node is not None and not one.is_graph_input():
            node.metadata_props[FIXED] = "1"
    return made[-1]


def _below_zero(of: Expr, found: MaskFunction, columns: Columns, em: Emitter) -> ir.Value:
    """Return whether a sum of key and query numbers is below 0, as a value."""
    known: Mapping[object, ir.Value] = {
        Coordinate(KEY): columns.keys,
        Coordinate(QUERY): columns.queries,
        found.past: columns.past,
    }
    # Positive terms stand on one side, negative ones on the other.
    sides: dict[bool, ir.Value | None] = {True: None, False: None}
    for factors, coefficient in of.ordered():
        size = abs(coefficient)
        if factors:
            ((atom, _),) = factors
            term = known[atom]
            if size != 1:
                term = em.op("Mul", term, [size])
        else:
            term = em.constant([size])
        before = sides[coefficient > 0]
        sides[coefficient > 0] = term if before is None else em.op("Add", before, term)
    left, right = sides[True] or [0], sides[False] or [0]
    return em.op("Less", left, right, hint="is_seen")


def _is_within_use(of: Expr, found: MaskFunction) -> bool:
    """Return whether `of < 0` shows no key behind that of the query itself: `j <= i + past`."""
    terms = {atom: k for monomial, k in of.terms for atom, _ in monomial}
    expected = {Coordinate(KEY): 1, Coordinate(QUERY): -1, found.past: -1}
    return terms == expected and of.constant <= -1


# Attention over windows with fixed sizes: steps of a fixed number of tokens.
#
#     K = [L - 1 rows that the step overwrites or never writes, and its first tokens still see;
#          the cache after the step]                                                   (B, KV, C, D)
#
# with C = W + L - 1. At every position each key that the source may read is one of these rows. The
# mask is computed from the position and the number of the row. With one token these are the rows
# of the cache.


def all_rows(read: WindowRead, length: int, em: Emitter) -> ir.Value:
    """Return all rows that a step of `length` tokens may read, (B, KV, W + L - 1, D)."""
    if length == 1:
        return read.present
    axis = {"axis": read.axis}
    before = min(length, read.capacity) - 1

    def overwritten() -> ir.Value:
        offsets = np.arange(before, dtype=np.int64) + 1 - read.capacity
        positions = em.op("Add", read.length, offsets, hint="positions")
        return em.op("Mod", positions, [read.capacity], hint="overwritten")

    places = em.once(("overwritten", read.capacity, before, read.length), overwritten)
    past = read.gather.inputs[0]
    parts = [em.op("Gather", past, places, attributes=axis, hint="overwritten")]
    if length > read.capacity:  # new rows that the cache holds no more after the step
        end = [length - read.capacity]
        parts.append(em.op("Slice", read.new, [0], end, [read.axis], hint="passing"))
    return em.op("Concat", *parts, read.present, attributes=axis, hint="rows")


def window_mask(
    read: WindowRead,
    length: int,
    found: MaskFunction | None,
    dtype: ir.DataType,
    most: int,
    em: Emitter,
) -> ir.Value:
    """Return the mask over these rows, (B or 1, 1, L, C); it is made once for all layers.

    L is `length`. `found` says which keys the source shows; None for all. It reads `most` keys at
    most.
    """

    def build() -> ir.Value:
        positions = _positions(read, length, em)
        past = em.op("Min", read.length, [read.capacity - 1], hint="rows_kept")
        # The first key of the source is the oldest row that it keeps.
        first = em.op("Sub", read.length, past, hint="oldest")
        keys = em.op("Sub", positions, first, hint="keys")
        places = em.op("Max", keys, [0], hint="columns")
        if most < read.capacity + length - 1:
            places = em.op("Min", places, [most - 1], hint="columns")
        return emit_mask_of(
            found,
            dtype,
            Columns(
                keys,
                em.constant(np.arange(length, dtype=np.int64)[:, None], "queries"),
                past,
                em.op("GreaterOrEqual", positions, [0], hint="in_use"),
                (length, read.capacity + length - 1),
                places,
            ),
            em,
        )

    return em.once(("window mask", found, dtype, read.capacity, length, read.length), build)


def _positions(read: WindowRead, length: int, em: Emitter) -> ir.Value:
    """Return the position of the token of each row, below 0 where there is none: (C,), int64."""
    slots = np.arange(read.capacity, dtype=np.int64)
    last = em.op("Add", read.length, [length - 1], hint="last")
    back = em.op("Mod", em.op("Sub", last, slots), [read.capacity], hint="back")
    positions = em.op("Sub", last, back, hint="positions")
    if length == 1:
        return positions
    offsets = np.arange(1, length, dtype=np.int64) - read.capacity
    rest = em.op("Add", read.length, offsets, hint="positions")
    return em.op("Concat", rest, positions, axis=0, hint="positions")
