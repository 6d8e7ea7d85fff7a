"""Masks over the rows in use, written for all rows of a cache: no size of them changes.

    shown[b, i, j] = (j <= i + past) and ... and attention_mask[b, j] != 0
    mask           = shown                                         where a mask of bools will do
                   = Where(shown, 0, Where(j < n, hidden, -inf))   else

with n, the rows in use, as numbers that follow from `past_length`. The input that says which rows
hold tokens gets as many columns as the cache has rows; those of rows that are not in use are never
looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.frame import KEY, QUERY
from onnx_kvtool.analysis.attention.mask_function import MaskFunction
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import unsqueeze, where
from onnx_kvtool.symbolic.atoms import Coordinate
from onnx_kvtool.symbolic.expression import Expr

__all__ = ["FIXED", "emit_fixed_mask"]

FIXED = "onnx_kvtool.fixed_mask"
"""Key of the metadata of nodes that read an input column by column, for as long as it is edited."""


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Numbers of keys and queries, which broadcast to (L, C).

    Attributes:
        keys: The number of each key, (C,).
        queries: The number of each query, (L, 1).
        past: How many keys stand before those of the queries, (1,).
    """

    keys: ir.Value
    queries: ir.Value
    past: ir.Value


def emit_fixed_mask(
    found: MaskFunction, like: ir.Value, capacity: int, queries: int, count: ir.Value, em: Emitter
) -> ir.Value:
    """Return a mask over all rows of a cache, (B or 1, 1, L, C).

    It is made once for all layers that have it.

    Args:
        found: Which keys it shows.
        like: The mask over the rows in use, whose type it has.
        capacity: Rows of the cache, C.
        queries: New rows, L.
        count: The rows in use after the step: (1,), int64.
        em: Where to build.
    """
    dtype = like.dtype
    assert dtype is not None
    key = ("fixed mask", found, dtype, capacity, queries, count)
    return em.once(key, lambda: _mask(found, dtype, capacity, queries, count, em))


def _mask(
    found: MaskFunction,
    dtype: ir.DataType,
    capacity: int,
    queries: int,
    count: ir.Value,
    em: Emitter,
) -> ir.Value:
    numbers = np.arange(max(capacity, queries), dtype=np.int64)
    past = em.op("Sub", count, em.constant([queries], "new_rows"), hint="past_rows")
    vectors = _Vectors(
        em.constant(numbers[:capacity], "keys"),
        em.constant(numbers[:queries, None], "queries"),
        past,
    )
    boolean = ir.DataType.BOOL
    in_use = em.op("Less", vectors.keys, count, dtype=boolean, hint="in_use")
    conditions = [_below_zero(one, found, vectors, em) for one in found.comparisons]
    if not any(_is_within_use(one, found) for one in found.comparisons):
        conditions.append(in_use)
    for value in found.inputs:
        other = value
        if value.dtype != boolean:
            other = em.op("Cast", value, attributes={"to": int(boolean)}, dtype=boolean)
        up = unsqueeze(em, other, [1, 2])
        for made in (up, other):
            node = made.producer()
            if node is not None and not made.is_graph_input():
                node.metadata_props[FIXED] = "1"
        conditions.append(up)
    shown = conditions[0]
    for condition in conditions[1:]:
        shown = em.op("And", shown, condition, dtype=boolean, hint="is_seen")
    target = em.constant([1, 1, queries, capacity], "shape")
    shown = em.op("Expand", shown, target, dtype=boolean, hint="is_seen")
    if dtype == boolean:
        return shown
    zero, hidden, never = (
        em.constant(np.array(number).astype(dtype.numpy()), "mask")
        for number in (0.0, found.hidden, -np.inf)
    )
    hides = where(em, em.op("Expand", in_use, target, dtype=boolean), hidden, never, hint="hides")
    return where(em, shown, zero, hides, hint="mask")


def _below_zero(of: Expr, found: MaskFunction, vectors: _Vectors, em: Emitter) -> ir.Value:
    """Return whether a sum of multiples of numbers of keys and queries is below 0."""
    known: Mapping[object, ir.Value] = {
        Coordinate(KEY): vectors.keys,
        Coordinate(QUERY): vectors.queries,
        found.past: vectors.past,
    }
    # What is added stands on one side, what is taken away on the other.
    sides: dict[bool, ir.Value | None] = {True: None, False: None}
    for monomial, coefficient in sorted(of.terms, key=repr):
        size = abs(coefficient)
        if monomial:
            ((atom, _),) = monomial
            term = known[atom]
            if size != 1:
                term = em.op("Mul", term, em.constant([size], "times"))
        else:
            term = em.constant([size], "ahead")
        before = sides[coefficient > 0]
        sides[coefficient > 0] = term if before is None else em.op("Add", before, term)
    nothing = em.constant([0], "nothing")
    left, right = (sides[side] or nothing for side in (True, False))
    return em.op("Less", left, right, dtype=ir.DataType.BOOL, hint="is_seen")


def _is_within_use(of: Expr, found: MaskFunction) -> bool:
    """Return whether `of < 0` leaves no key behind that of the query itself: `j <= i + past`."""
    terms = {atom: k for monomial, k in of.terms for atom, _ in monomial}
    expected = {Coordinate(KEY): 1, Coordinate(QUERY): -1, found.past: -1}
    return terms == expected and of.constant <= -1
