"""Interpolation between pixels: the pixels of each point, and their weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, channels_last, size, squeeze, unsqueeze, where
from onnx_kvtool.symbolic.dimensions import Dim

Number = ir.Value | float
"""A scalar: a value, or a number that becomes a constant of the type beside it."""


def clip(em: Emitter, x: ir.Value, low: Number, high: Number) -> ir.Value:
    """Return floats clipped to two scalars; `low` where one is NaN."""
    above = where(em, em.op("Greater", x, low), x, low, "above")
    return em.op("Min", above, high)


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
        known = cast(self.em, size(self.em, self.dim, self.data, self.place), self.dtype)
        return self.em.op("Add", known, plus) if plus else known

    def rows(self) -> Number:
        """Return the size with the margins: a number, or (), int64."""
        if isinstance(self.dim, int):
            return self.dim + 2 * self.margin
        count = size(self.em, self.dim, self.data, self.place)
        return self.em.op("Add", count, 2 * self.margin) if self.margin else count

    def index(self, place: ir.Value) -> ir.Value:
        """Return positions, whole floats, as rows: (...), int64.

        What lies outside is the nearest row: a row of zeros where there is a margin.
        """
        if not self.margin:
            return cast(self.em, clip(self.em, place, 0, self.length(-1)), ir.DataType.INT64)
        clamped_at = clip(self.em, place, -1, self.length())
        return cast(self.em, self.em.op("Add", clamped_at, 1), ir.DataType.INT64)


def linear_taps(em: Emitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the pixels around each point of (..., 1), whole floats, and their shares: (..., 2)."""
    low = em.op("Floor", x)
    far = em.op("Sub", x, low)
    shares = em.op("Add", em.op("Mul", far, [-1, 1]), [1, 0])  # 1 - far, far
    return em.op("Add", low, [0, 1]), shares


def cubic_taps(em: Emitter, x: ir.Value, a: float) -> tuple[ir.Value, ir.Value]:
    """Return the four pixels around each point, and their shares, by Keys with coefficient `a`.

    As `linear_taps`, but (..., 4).
    """
    low = em.op("Floor", x)
    far = em.op("Sub", x, low)
    factors: list[list[float]] = [
        [a, a + 2, -a - 2, -a],  # of far ** 3, for the pixels -1, 0, 1 and 2
        [-2 * a, -a - 3, 2 * a + 3, a],
        [a, 0, -a, 0],
        [0, 1, 0, 0],
    ]
    shares = em.op("Mul", far, factors[0])
    for power in factors[1:3]:
        shares = em.op("Mul", em.op("Add", shares, power), far)
    shares = em.op("Add", shares, factors[3])
    return em.op("Add", low, [-1, 0, 1, 2]), shares


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
    em: Emitter,
    start: ir.Value | None,
    axes: Sequence[Axis],
    places: Sequence[ir.Value],
    shares: Sequence[ir.Value],
    taps: int,
    rank: int,
) -> tuple[ir.Value, ir.Value | None]:
    """Return each combination of one tap for each axis, the last axis the fastest.

    Args:
        em: Where to build.
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
    index, weight = start, None

    def chosen(value: ir.Value, axis: int) -> ir.Value:
        if len(axes) == 1 or taps == 1:
            return value
        return em.op("Gather", value, em.constant(choices[:, axis], "taps"), axis=rank - 1)

    for number, (axis, place) in enumerate(zip(axes, places, strict=True)):
        if index is not None:
            index = em.op("Mul", index, axis.rows())
        row = chosen(place, number)
        index = row if index is None else em.op("Add", index, row, hint="row")
    for number, share in enumerate(shares):
        part = chosen(share, number)
        weight = part if weight is None else em.op("Mul", weight, part)
    assert index is not None
    return index, weight


def blended(
    em: Emitter, rows: ir.Value, index: ir.Value, weight: ir.Value | None, rank: int
) -> ir.Value:
    """Return weighted sums (..., C) of rows (P, C).

    `index` and `weight`, of the type of the rows, are (..., T) of that rank; no weight if T is 1.
    """
    picked = em.op("Gather", rows, index)  # (..., T, C)
    if weight is not None:
        flat = unsqueeze(em, weight, [rank - 1])  # (..., 1, T)
        picked = em.op("MatMul", flat, picked)  # (..., 1, C)
    return squeeze(em, picked, [rank - 1])
