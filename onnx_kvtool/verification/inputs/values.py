"""Random arrays of every element type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from numpy.random import Generator

from onnx_kvtool.runtime.sessions import Array
from onnx_kvtool.verification.inputs.cases import Range, Shape
from onnx_kvtool.verification.inputs.points import Directions, Points
from onnx_kvtool.verification.inputs.roles import Uses

_T = TypeVar("_T", bound=np.generic)
_Integers = npt.NDArray[np.integer[Any]]


def moderate(rng: Generator, dtype: ir.DataType, shape: Shape) -> Array:
    """Return values that are safe to compute with.

    Floats are normal with a deviation of 1 (magnitudes for types without a sign), integers lie in
    [0, 4), booleans and strings are random.
    """
    if dtype == ir.DataType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype == ir.DataType.STRING:
        return _strings(rng, shape)
    if dtype.is_integer():
        return _cast(rng.integers(0, 4, shape), dtype)
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return _cast(rng.normal(size=shape) + 1j * rng.normal(size=shape), dtype)
    values = rng.normal(size=shape)
    return _cast(np.abs(values) if dtype == ir.DataType.FLOAT8E8M0 else values, dtype)


def varied(
    rng: Generator,
    dtype: ir.DataType,
    shape: Shape,
    values: Range,
    points: Points,
    name: str,
) -> Array:
    """Return values for an input that no role limits, in the range that a case asks for.

    An input that decides sizes or positions gets moderate values in every case.
    """
    if values == "below" and dtype.is_signed() and name in dict(points.corners.signed):
        ids = rng.integers(-4, 4, shape)
        return _cast(np.where(np.arange(ids.size).reshape(shape) == 0, -1, ids), dtype)
    if values not in ("moderate", "below") and name not in points.sizing:
        if dtype in _REAL:
            return _cast(_reals(rng, dtype, shape, values, points), dtype)
        if dtype.is_integer():
            return _cast(_integers(rng, dtype, shape, values, points, name), dtype)
    return moderate(rng, dtype, shape)


_REAL = frozenset(
    {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
)
"""Types that a model may compute sums and products in; others hold quantized values."""

_SCALES: Mapping[Range, float] = {"small": 1e-3, "wide": 10.0, "large": 100.0}

_WIDE = ir.DataType.FLOAT, ir.DataType.DOUBLE
"""Types that hold the products of large numbers."""


def _reals(
    rng: Generator,
    dtype: ir.DataType,
    shape: Shape,
    values: Range,
    points: Points,
) -> npt.NDArray[np.float64]:
    normal = np.asarray(rng.normal(size=shape))
    if values in ("positive", "negative"):
        return (np.abs(normal) + 0.1) * (1 if values == "positive" else -1)
    if values in ("small", "large"):
        return normal * _SCALES[values]
    limits = ml_dtypes.finfo(dtype.numpy())  # type: ignore[no-untyped-call]
    if values == "huge":  # too large to square
        return normal * 16 * math.sqrt(float(limits.max))
    if values == "distant":
        return normal + 4 / math.sqrt(float(limits.eps))
    if values == "whole":
        return _whole(rng, normal, points.numbers)
    near: list[float] = []
    step = float(np.finfo(np.float32 if dtype in _WIDE else np.float16).eps)
    for point in (number + 0.0 for number in points.numbers):  # no -0
        if abs(point) <= (10_000.0 if dtype in _WIDE else 100.0):
            wider = max(abs(point) / 4, 0.25)
            near += [point * (1 - 2 * step), point, point * (1 + 2 * step)]
            near += [point - wider, point + wider]
    if values == "wide":
        return _mixed(rng, normal * _SCALES["wide"], near, 4)
    if points.special:
        near += [math.inf, -math.inf, math.nan]
    scales = rng.choice([1.0, 1.0, 1.0, 10.0, 100.0 if dtype in _WIDE else 1.0], shape[:-1])
    normal = normal * (scales[..., None] if shape else 1.0)
    general = [0.0, 1.0, -1.0, 2.0, -2.0, 1e-3, -1e-3, 5.0, -5.0, 10.0, -10.0]
    mixed = _mixed(rng, _mixed(rng, normal, general, 4 if near else 2), near, 2)
    return mixed if points.special else _tied(rng, mixed)


def _whole(
    rng: Generator, normal: npt.NDArray[np.float64], numbers: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return whole floats; rows of them add up to whole ones of `numbers`."""
    whole = np.rint(np.clip(2 * normal, -4, 4)) + 0.0  # no -0
    sums = [number for number in numbers if number == int(number) and abs(number) <= _FEW]
    if not sums or not normal.ndim or not normal.size:
        return whole
    rows = whole.reshape(-1, normal.shape[-1])
    rows[:, -1] += np.resize(rng.permutation(sums), len(rows)) - rows.sum(axis=-1)
    return rows.reshape(normal.shape)


_FEW = 1000
"""Largest sum of whole numbers that is drawn."""


def _integers(
    rng: Generator,
    dtype: ir.DataType,
    shape: Shape,
    values: Range,
    points: Points,
    name: str,
) -> _Integers:
    low, high = int(dtype.min), int(dtype.max)
    if name in points.scaled:
        low, high = max(low, -_SCALED), min(high, _SCALED)
    if values == "small":
        drawn = _any_integers(rng, max(low, -8), min(high, 8), shape)
    else:
        drawn = _any_integers(rng, low, high, shape)
    if values == "edges":
        general = [0, 1, -1, 2, -2, 7, -7, low, high, low + 1, high - 1]
        near = [math.floor(point) + by for point in points.numbers for by in (-1, 0, 1)]
        for chosen, one_in in ((general, 2), (near, 3)):
            known = [number for number in chosen if low <= number <= high]
            drawn = _mixed(rng, np.asarray(drawn), known, one_in)
        drawn = _tied(rng, drawn)
    if name in points.divisors:
        # One by 0 fails; the least integer by -1 ends the process.
        drawn = np.where((drawn == 0) | (drawn.astype(np.int64) == -1), drawn.dtype.type(3), drawn)
    return np.asarray(drawn)


_SCALED = 1000
"""Largest integer that is computed with as a float."""


def _mixed(
    rng: Generator, drawn: npt.NDArray[_T], chosen: Sequence[float], one_in: int
) -> npt.NDArray[_T]:
    """Return an array where one element in so many is a chosen one; at least one is.

    The first of those that are chosen is among them, others in a drawn order.
    """
    flat = drawn.reshape(-1).copy()
    count = min(flat.size, max(flat.size // one_in, 1)) if chosen else 0
    places = rng.permutation(flat.size)[:count]
    order = [0, *(1 + rng.permutation(max(len(chosen) - 1, 0)))]
    values = [chosen[place] for place in order[: min(count, len(chosen))]]
    if values:
        flat[places] = np.resize(np.asarray(values, flat.dtype), count)
    return flat.reshape(drawn.shape)


def _tied(rng: Generator, drawn: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Return an array that has its largest or least element along an axis twice, in some rows.

    Of three rows or more along the last axis one holds zeros, one no float above 0 and some zeros
    but for one element.
    """
    for axis, size in enumerate(drawn.shape):
        if size < 2 or not drawn.size:
            continue
        moved = np.moveaxis(drawn, axis, -1).copy()
        rows = moved.reshape(-1, size)
        twice = rows[::4]
        twice[:, rng.permutation(size)[:2]] = twice.max(axis=-1, keepdims=True)
        twice = rows[1::4]
        twice[:, rng.permutation(size)[:2]] = twice.min(axis=-1, keepdims=True)
        drawn = np.moveaxis(rows.reshape(moved.shape), -1, axis)
    if drawn.ndim > 1 and drawn.shape[-1] and drawn.size >= 3 * drawn.shape[-1]:
        rows = drawn.copy().reshape(-1, drawn.shape[-1])
        zeros, negative, *others = rng.permutation(len(rows))
        rows[zeros] = 0
        peaks = others[: max(len(rows) // 4, 1)]  # norms give their largest values here
        rows[peaks] = 0
        rows[peaks, np.resize(rng.permutation(rows.shape[-1]), len(peaks))] = 10
        if rows.dtype.kind == "f":
            # Moved data is compared bit for bit, and a Where of onnxruntime makes -0 to 0.
            rows[negative] = 0.0 - np.abs(rows[negative])
        drawn = rows.reshape(drawn.shape)
    return drawn


def any_bits(rng: Generator, dtype: ir.DataType, shape: Shape) -> Array:
    """Return values that are as different as the type allows, for data that is only moved.

    As `moderate`, but integers cover the range of their type, so that rows hardly ever agree.
    """
    if not dtype.is_integer():
        return moderate(rng, dtype, shape)
    return _cast(_any_integers(rng, int(dtype.min), int(dtype.max), shape), dtype)


def _any_integers(rng: Generator, low: int, high: int, shape: Shape) -> _Integers:
    wide: type[np.int64 | np.uint64] = np.int64 if low < 0 else np.uint64
    return np.asarray(rng.integers(low, high, shape, wide, endpoint=True))


def token_ids(
    rng: Generator,
    dtype: ir.DataType,
    shape: Shape,
    uses: Uses,
    directions: Directions,
    first: Sequence[int] = (),
) -> Array:
    """Return integers that index the rows of a table; in [0, 4) when these are unknown.

    The first of them are `first` and the rows of `directions`, in a drawn order, as many as there
    is room for.
    """
    rows = uses.rows
    chosen = [row for table in uses.tables for row in directions.ids.get(table, ())]
    chosen = [*first, *(rng.permutation(chosen).tolist() if chosen else ())]
    drawn = np.asarray(rng.integers(0, 4 if rows is None else max(rows, 1), shape))
    known = [row for row in chosen if rows is not None and 0 <= row < rows]
    flat = drawn.reshape(-1)
    flat[: len(known)] = known[: flat.size]
    return _cast(drawn, dtype)


def _cast(values: object, dtype: ir.DataType) -> Array:
    # A scalar draw is no array.
    return np.asarray(values).astype(dtype.numpy())


def _strings(rng: Generator, shape: Shape) -> Array:
    numbers = rng.integers(0, 1_000_000, shape)
    strings = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        strings[index] = f"s{numbers[index]}"
    return strings
