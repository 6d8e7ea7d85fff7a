"""Interpolation between pixels: the pixels of each point, and their weights."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import Term, channels_last, size, squeeze, unsqueeze
from onnx_kvtool.symbolic.dimensions import Dim

Number = Term | float
"""A scalar: a term, or a number that becomes a constant of the type beside it."""


def clip(x: Term, low: Number, high: Number) -> Term:
    """Return floats clipped to two scalars; `low` where one is NaN."""
    return (x > low).where(x, low).op("Min", high)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of pixels.

    Attributes:
        em: Where to build.
        dtype: Element type of coordinates, float32 or float64.
        dim: Its size, where it is known.
        data: The value whose axis it is.
        place: Which one.
        margin: Rows of zeros on either side that were added to it.
    """

    em: Emitter
    dtype: ir.DataType
    dim: Dim
    data: ir.Value
    place: int
    margin: int = 0

    def length(self, plus: float = 0) -> Number:
        """Return the size plus a number: a number, or (), a float."""
        if isinstance(self.dim, int):
            return self.dim + plus
        known = self._size().cast(self.dtype)
        return known + plus if plus else known

    def rows(self) -> Number:
        """Return the size with the margins: a number, or (), int64."""
        if isinstance(self.dim, int):
            return self.dim + 2 * self.margin
        return self._size() + 2 * self.margin if self.margin else self._size()

    def _size(self) -> Term:
        return Term(self.em, size(self.em, self.data, self.place, self.dim))

    def index(self, place: Term) -> Term:
        """Return positions, whole floats, as rows: (...), int64.

        What lies outside is the nearest row: a row of zeros where there is a margin.
        """
        if not self.margin:
            return clip(place, 0, self.length(-1)).cast(ir.DataType.INT64)
        return (clip(place, -1, self.length()) + 1).cast(ir.DataType.INT64)


def linear_taps(x: Term) -> tuple[Term, Term]:
    """Return the pixels around each point of (..., 1), whole floats, and their shares: (..., 2)."""
    low = x.op("Floor")
    far = x - low
    shares = far * [-1, 1] + [1, 0]  # 1 - far, far
    return low.op("Add", [0, 1]), shares


def cubic_taps(x: Term) -> tuple[Term, Term]:
    """Return the four pixels around each point, and their shares, by Keys with coefficient -0.75.

    As `linear_taps`, but (..., 4).
    """
    low = x.op("Floor")
    far = x - low
    shares = far * [-0.75, 1.25, -1.25, 0.75]  # of far ** 3, for the pixels -1, 0, 1 and 2
    for power in ([1.5, -2.25, 1.5, -0.75], [-0.75, 0, 0.75, 0]):
        shares = (shares + power) * far
    return low.op("Add", [-1, 0, 1, 2]), shares.op("Add", [0, 1, 0, 0])


def pixel_rows(em: Emitter, data: ir.Value, rank: int, margin: int = 0) -> ir.Value:
    """Return a row of channels for each pixel of pictures: (N * D1 * ... * Dk, C).

    The data is (N, C, D1, ..., Dk) of that rank; each D gets a margin of zeros on either side.
    """
    if margin:
        pads = ([0, 0] + [margin] * (rank - 2)) * 2
        data = em.op("Pad", data, pads)
    turned = channels_last(em, data, rank)
    return em.op("Flatten", turned, axis=rank - 1)


def combined(
    start: ir.Value | None,
    axes: Sequence[Axis],
    places: Sequence[Term],
    shares: Sequence[Term],
    taps: int,
    rank: int,
) -> tuple[Term, Term | None]:
    """Return each combination of one tap for each axis, the last axis the fastest.

    Args:
        start: Which picture: a value that is broadcast against the places, int64; None for the
            first.
        axes: The axes, in order.
        places: For each axis its rows: (..., taps), int64.
        shares: For each axis their shares: (..., taps); none where a single tap is whole.
        taps: Taps of one axis.
        rank: Rank of the places.

    Returns:
        Rows of `pixel_rows`: (..., taps ** k), int64; and the products of shares, of that shape.
    """
    choices = np.array(list(itertools.product(range(taps), repeat=len(axes))))

    def chosen(values: Sequence[Term]) -> list[Term]:
        if len(axes) == 1 or taps == 1:
            return list(values)
        return [x.op("Gather", choices[:, i], axis=rank - 1) for i, x in enumerate(values)]

    index = None if start is None else Term(axes[0].em, start)
    for axis, row in zip(axes, chosen(places), strict=True):
        index = row if index is None else index * axis.rows() + row
    weights = chosen(shares)
    assert index is not None
    return index, functools.reduce(operator.mul, weights) if weights else None


def blended(em: Emitter, rows: ir.Value, index: Term, weight: Term | None, rank: int) -> ir.Value:
    """Return weighted sums (..., C) of rows (P, C).

    `index` and `weight`, of the type of the rows, are (..., T) of that rank; no weight if T is 1.
    """
    picked = em.op("Gather", rows, index)  # (..., T, C)
    if weight is not None:
        flat = weight.then(unsqueeze, [rank - 1])  # (..., 1, T)
        picked = em.op("MatMul", flat, picked)  # (..., 1, C)
    return squeeze(em, picked, [rank - 1])
