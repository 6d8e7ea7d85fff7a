"""The indices of ScatterElements and ScatterND that write the same rows."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import cast, dim_key, positions
from onnx_kvtool.rewrite.lowering.tensor_scatter.facts import (
    OUTSIDE,
    CacheUpdate,
    checked_start_int32,
    outside_where_negative,
    row_or_outside,
    wrapping_modulus,
)
from onnx_kvtool.symbolic.dimensions import fixed_sizes

# The index of the ScatterElements form: one row number per element of the update.


def element_index(
    em: Emitter,
    update: CacheUpdate,
    bounds: Literal["checked", "unchecked"],
    dtype: Literal["int64", "int32"],
) -> ir.Value:
    """Build the row number `start[b] + l` of every element of an update.

    Args:
        em: Where to build.
        update: The TensorScatter.
        bounds: As for `row_tuples`. `unchecked` with int32 narrows starts of 2^31 and more in
            silence; checked ones never wrap.
        dtype: Element type of the index.

    Returns:
        (B, D1, ..., L, ..., Dn), the shape of `update`. Built once per (write_indices, shapes,
        mode, bounds, dtype) and shared by every update that has the same.

    Raises:
        Refusal: If the rank is unknown, or the cache has more rows than an int32 index reaches.
    """
    if update.rank is None:
        raise Refusal(
            "unknown-rank",
            f"the rank of `{update.past_cache.name}` and `{update.update.name}` is unknown, and "
            "ScatterElements needs one index per element",
            help="declare the shape of the cache, or use `--via scatternd`",
        )
    if dtype == "int32" and isinstance(update.capacity, int) and update.capacity > OUTSIDE:
        raise Refusal(
            "cache-too-long",
            f"the cache has {update.capacity} rows, more than an int32 index can check",
            help="use `--index-dtype int64`",
        )
    return _build(em.sharing, update, bounds == "checked", dtype)


def _build(em: Emitter, update: CacheUpdate, checked: bool, dtype: str) -> ir.Value:
    assert update.rank is not None
    axis, rank = update.axis, update.rank
    rows = positions(em, update.update, axis, place=axis, rank=rank, dim=update.length)
    if update.write_indices is not None:
        starts = em.op(
            "Reshape", update.write_indices, [-1] + [1] * (update.rank - 1), hint="starts"
        )
        start = starts  # within the cache; those of linear mode certain to fail
        if update.mode == "circular":
            modulus = wrapping_modulus(em, update, checked=checked)
            start = em.op("Mod", starts, modulus, hint="start")
        elif checked:
            start = checked_start_int32(em, starts)
        rows = em.op("Add", start, rows, hint="row")  # (B, 1, ..., L, ..., 1)
        if update.mode == "circular" and update.length != 1:
            rows = em.op("Mod", rows, modulus, hint="row")
        if update.mode == "circular" and checked:
            rows = outside_where_negative(em, starts, rows, update.rank)
    if dtype == "int32":
        rows = cast(em, rows, ir.DataType.INT32, "row_int32")
    return em.op("Expand", rows, _shape(em, update))


def _shape(em: Emitter, update: CacheUpdate) -> ir.Value:
    """Return the shape of the update: (rank,), int64."""
    dims = (*update.lead, *(update.trail or ()))
    sizes = fixed_sizes(dims)
    if sizes is not None:
        return em.constant(sizes, "shape")
    # One for all updates whose sizes have the same names.
    key = ("shape", *(dim_key(d, update.update, i) for i, d in enumerate(dims)))
    return em.once(key, lambda: em.op("Shape", update.update))


# The index of the ScatterND form: one tuple per row of the update.


_LARGEST_CONSTANT = 2**17
"""Most index numbers that are kept as a constant (1 MiB); above it they are added at run time."""


def row_tuples(
    em: Emitter, update: CacheUpdate, bounds: Literal["checked", "unchecked"]
) -> ir.Value:
    """Build the index tuples `(b, d1, ..., start[b] + l)` of an update.

    Args:
        em: Where to build.
        update: The TensorScatter; its rank need not be known.
        bounds: `checked` sends a negative start, and an update that is longer than a circular
            cache, to a row outside the cache.

    Returns:
        (B, D1, ..., L, axis + 1), int64. Built once per (write_indices, shapes, mode, bounds) and
        shared by every update that has the same.
    """
    starts = update.write_indices if update.starts is None else update.starts
    lead = tuple(dim_key(d, update.update, i) for i, d in enumerate(update.lead))
    capacity: Hashable = None
    if update.mode == "circular":
        capacity = dim_key(update.capacity, update.past_cache, update.axis)
    key = ("row tuples", starts, lead, update.mode, capacity, bounds)
    return em.once(key, lambda: _Tuples(em, update, bounds).build())


class _Tuples:
    """One run of `row_tuples`; `k` is the number of coordinates in a tuple."""

    def __init__(self, em: Emitter, update: CacheUpdate, bounds: str) -> None:
        self.em = em
        self.facts = update
        self.checked = bounds == "checked"
        self.k = len(update.lead)
        sizes = [d for d in update.lead[:-1] if isinstance(d, int)]
        self.is_small = math.prod(sizes) * self.k <= _LARGEST_CONSTANT

    def build(self) -> ir.Value:
        facts = self.facts
        if facts.write_indices is None:
            # Every start is zero: L <= S rows from the first one on, which never wrap.
            return self._sum([*self._spread(self._counters()), *self._fixed(rows=True)])
        if facts.starts is not None and (known := self._known(facts.starts)) is not None:
            return self.em.constant(known, "index")
        if facts.mode == "linear":
            starts = self._column(facts.write_indices)
            if self.checked and facts.lead[0] == 1:
                return self._sum([*self._chosen(starts, starts), *self._rows()])
            if self.checked:
                starts = outside_where_negative(self.em, starts, starts, self.k + 1)
            return self._placed(starts, rows_follow=True)
        return self._circular(facts.write_indices)

    def _known(self, starts: tuple[int, ...]) -> np.ndarray | None:
        """Return the whole index where starts and sizes are numbers and it is not too large."""
        facts, sizes = self.facts, fixed_sizes(self.facts.lead)
        circular = facts.mode == "circular"
        if sizes is None or math.prod(sizes) * self.k > _LARGEST_CONSTANT:
            return None
        if circular and not isinstance(facts.capacity, int):
            return None
        index = _grid(sizes)
        # (B,) -> (B, 1, ..., 1), one dimension for each one in front of the coordinates.
        index[..., -1] += np.asarray(starts, np.int64).reshape(-1, *[1] * (self.k - 1))
        if circular and isinstance(facts.capacity, int) and facts.capacity:
            index[..., -1] %= facts.capacity
        return index

    def _chosen(self, start: ir.Value, row: ir.Value) -> list[ir.Value]:
        """Return what makes up the tuples of one sequence, whose start and row are single numbers.

        What is known of the other coordinates rides along in the choice that checks the start: that
        saves additions.
        """
        em = self.em
        prefix = self._prefix()
        outside = em.constant(prefix + _last(self.k, OUTSIDE), "outside")
        chosen = row_or_outside(
            em, start, row, outside, self.k, wraps=self.facts.mode == "circular"
        )
        return [chosen, *self._spread(self._counters())]

    def _placed(self, rows: ir.Value, *, rows_follow: bool) -> ir.Value:
        """Return the tuples of rows (B, 1, ..., L or 1, 1), plus 0 .. L-1 where `rows_follow`."""
        placed = self.em.op("Mul", rows, self._unit(self.k - 1), hint="row")
        return self._sum([placed, *self._spread(self._counters()), *self._fixed(rows=rows_follow)])

    def _circular(self, write_indices: ir.Value) -> ir.Value:
        """Return the tuples of a circular cache."""
        facts, em, starts = self.facts, self.em, self._column(write_indices)
        modulus = wrapping_modulus(em, facts, checked=self.checked)
        row = em.op("Mod", starts, modulus, hint="start")
        if facts.length != 1:
            row = em.op("Add", row, self._row_numbers(), hint="row")
            row = em.op("Mod", row, modulus, hint="row")
        if self.checked and facts.lead[0] == 1 and facts.length == 1:
            return self._sum(self._chosen(starts, row))
        if self.checked:
            row = outside_where_negative(em, starts, row, self.k + 1)
        return self._placed(row, rows_follow=False)

    def _column(self, write_indices: ir.Value) -> ir.Value:
        """Return write_indices as (B, 1, ..., 1), of the rank of the index."""
        if self.facts.lead[0] == 1:
            return write_indices  # (1,) broadcasts as it is
        return self.em.sharing.op("Reshape", write_indices, [-1] + [1] * self.k, hint="starts")

    def _counters(self) -> dict[int, ir.Value]:
        """Return (.., d_i, .., 1) counters of the dimensions that `_prefix` leaves out."""
        facts = self.facts
        return {
            i: positions(self.em, facts.update, i, place=i, rank=self.k + 1, dim=dim)
            for i, dim in enumerate(facts.lead[:-1])
            if not (isinstance(dim, int) and self.is_small)
        }

    def _row_numbers(self) -> ir.Value:
        """Return 0 .. L-1 as (1, ..., L, 1)."""
        facts, last = self.facts, self.k - 1
        return positions(
            self.em, facts.update, facts.axis, place=last, rank=self.k + 1, dim=facts.length
        )

    def _spread(self, counters: dict[int, ir.Value]) -> list[ir.Value]:
        """Return each counter as tuples that are zero in the other coordinates."""
        return [
            self.em.op("Mul", counter, self._unit(i), hint="coordinate")
            for i, counter in counters.items()
        ]

    def _fixed(self, *, rows: bool) -> list[ir.Value]:
        """Return the coordinates that do not depend on the starts, where they are known.

        `rows`: the row numbers 0 .. L-1 are among them, also for an unknown L.
        """
        prefix = self._prefix()
        length = self.facts.length
        if rows and isinstance(length, int) and prefix.size * length <= _LARGEST_CONSTANT:
            prefix = prefix + _grid([1] * (self.k - 1) + [length])
            rows = False
        known = prefix.any() or prefix.size == 0
        fixed = [self.em.constant(prefix, "rows")] if known else []
        return fixed + (self._rows() if rows else [])

    def _prefix(self) -> np.ndarray:
        """Return the known coordinates before the sequence axis, (.., 1, k), or the origin."""
        lead = self.facts.lead[:-1]
        return _grid([d if isinstance(d, int) and self.is_small else 1 for d in lead] + [1])

    def _rows(self) -> list[ir.Value]:
        """Return the row numbers 0 .. L-1 as tuples (1, ..., L, k); nothing for a single row."""
        length = self.facts.length
        if not isinstance(length, int):
            unit = self._unit(self.k - 1)
            return [self.em.op("Mul", self._row_numbers(), unit, hint="row")]
        if length == 1:
            return []
        return [self.em.constant(_grid([1] * (self.k - 1) + [length]), "rows")]

    def _sum(self, parts: list[ir.Value]) -> ir.Value:
        if not parts:  # a single row at the origin
            return self.em.constant(np.zeros((*[1] * self.k, self.k), np.int64), "index")
        total = parts[0]
        for part in parts[1:]:
            total = self.em.op("Add", total, part, hint="index")
        return total

    def _unit(self, place: int) -> ir.Value:
        """Return (1, ..., 1, k): 1 in one coordinate, 0 in the others.

        The leading ones give every sum the full rank of the index, also for a batch of one.
        """
        return self.em.constant(_last(self.k, 1, place), "unit")


def _last(k: int, number: int, place: int = -1) -> np.ndarray:
    """Return (1, ..., 1, k): `number` in one coordinate, the last if not said, 0 in the others."""
    vector = np.zeros((*[1] * k, k), np.int64)
    vector[..., place] = number
    return vector


def _grid(sizes: list[int]) -> np.ndarray:
    """Return (*sizes, len(sizes)): the coordinates of every place in a box of these sizes."""
    return np.stack(np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij"), axis=-1).astype(
        np.int64
    )
