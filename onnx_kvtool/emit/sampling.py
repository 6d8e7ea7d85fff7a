"""Interpolation between pixels: the pixels of each point, and their weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, channels_last, size, squeeze, unsqueeze, where
from onnx_kvtool.symbolic.dimensions import Dim


@dataclass(frozen=True, slots=True)
class Numbers:
    """Arithmetic of floats in one element type.

    Attributes:
        em: Where to build.
        dtype: The element type, float32 or float64.
    """

    em: Emitter
    dtype: ir.DataType

    def constant(self, number: float | Sequence[float] | NDArray[np.float64]) -> ir.Value:
        """Return a number, or several."""
        return self.em.constant(np.array(number, self.dtype.numpy()), "number")

    def op(self, op_type: str, *inputs: ir.Value | float) -> ir.Value:
        """Return the result of an operator that keeps the type; numbers become constants."""
        given = [x if isinstance(x, ir.Value) else self.constant(x) for x in inputs]
        return self.em.op(op_type, *given)

    def is_greater(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return `a > b`; false where one is NaN."""
        return self.em.op("Greater", a, b)

    def clip(self, x: ir.Value, low: ir.Value | float, high: ir.Value | float) -> ir.Value:
        """Return `x` clipped to two scalars; `low` where it is NaN."""
        bound = low if isinstance(low, ir.Value) else self.constant(low)
        above = where(self.em, self.is_greater(x, bound), x, bound, "above")
        return self.op("Min", above, high)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of pixels.

    Attributes:
        dim: Its size, where it is known.
        data: The value whose axis it is.
        place: Which one.
        margin: Rows of zeros on either side that were added to it.
    """

    dim: Dim
    data: ir.Value
    place: int
    margin: int = 0

    def length(self, numbers: Numbers, plus: float = 0) -> ir.Value:
        """Return the size plus a number: (), a float."""
        if isinstance(self.dim, int):
            return numbers.constant(self.dim + plus)
        em = numbers.em
        known = cast(em, size(em, self.dim, self.data, self.place), numbers.dtype)
        return numbers.op("Add", known, plus) if plus else known

    def rows(self, em: Emitter) -> ir.Value:
        """Return the size with the margins: (), int64."""
        if isinstance(self.dim, int):
            return em.constant(self.dim + 2 * self.margin, "size")
        count = size(em, self.dim, self.data, self.place)
        return em.op("Add", count, 2 * self.margin) if self.margin else count

    def index(self, numbers: Numbers, place: ir.Value) -> ir.Value:
        """Return positions, whole floats, as rows: (...), int64.

        What lies outside is the nearest row: a row of zeros where there is a margin.
        """
        if not self.margin:
            clamped_at = numbers.clip(place, 0, self.length(numbers, -1))
            return cast(numbers.em, clamped_at, ir.DataType.INT64)
        clamped_at = numbers.clip(place, -1, self.length(numbers))
        return cast(numbers.em, numbers.op("Add", clamped_at, 1), ir.DataType.INT64)


def linear_taps(numbers: Numbers, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the two pixels around each point, and their shares.

    Args:
        numbers: The type.
        x: (..., 1), positions.

    Returns:
        (..., 2), whole floats, and (..., 2).
    """
    low = numbers.op("Floor", x)
    far = numbers.op("Sub", x, low)
    slope, start = numbers.constant([-1, 1]), numbers.constant([1, 0])
    shares = numbers.op("Add", numbers.op("Mul", far, slope), start)  # 1 - far, far
    return numbers.op("Add", low, numbers.constant([0, 1])), shares


def cubic_taps(numbers: Numbers, x: ir.Value, a: float) -> tuple[ir.Value, ir.Value]:
    """Return the four pixels around each point, and their shares, by Keys with coefficient `a`.

    Args:
        numbers: The type.
        x: (..., 1), positions.
        a: The coefficient.

    Returns:
        (..., 4), whole floats, and (..., 4).
    """
    low = numbers.op("Floor", x)
    far = numbers.op("Sub", x, low)
    factors: list[list[float]] = [
        [a, a + 2, -a - 2, -a],  # of far ** 3, for the pixels -1, 0, 1 and 2
        [-2 * a, -a - 3, 2 * a + 3, a],
        [a, 0, -a, 0],
        [0, 1, 0, 0],
    ]
    shares = numbers.op("Mul", far, numbers.constant(factors[0]))
    for power in factors[1:3]:
        shares = numbers.op("Mul", numbers.op("Add", shares, numbers.constant(power)), far)
    shares = numbers.op("Add", shares, numbers.constant(factors[3]))
    return numbers.op("Add", low, numbers.constant([-1, 0, 1, 2])), shares


def pixel_rows(em: Emitter, data: ir.Value, rank: int, margin: int = 0) -> ir.Value:
    """Return a row of channels for each pixel of each picture.

    Args:
        em: Where to build.
        data: (N, C, D1, ..., Dk).
        rank: Its rank, k + 2.
        margin: Rows of zeros to add on either side of each D.

    Returns:
        (N * D1 * ... * Dk, C), each D with its margins.
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
        picks, last = em.constant(choices[:, axis], "taps"), {"axis": rank - 1}
        return em.op("Gather", value, picks, attributes=last)

    for number, (axis, place) in enumerate(zip(axes, places, strict=True)):
        if index is not None:
            index = em.op("Mul", index, axis.rows(em))
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
    """Return the sum of rows by their weights.

    Args:
        em: Where to build.
        rows: (P, C).
        index: (..., T), int64.
        weight: (..., T), of the type of the rows; None where T is 1.
        rank: Rank of the index.

    Returns:
        (..., C).
    """
    picked = em.op("Gather", rows, index)  # (..., T, C)
    if weight is not None:
        flat = unsqueeze(em, weight, [rank - 1])  # (..., 1, T)
        picked = em.op("MatMul", flat, picked)  # (..., 1, C)
    return squeeze(em, picked, [rank - 1])
