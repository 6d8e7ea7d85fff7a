"""How two values of the same output differ, and which rows of a cache stayed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.record import Form, Key, Record
from onnx_kvtool.runtime.sessions import Array

# How two values of the same output differ.


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two results of the same computation may lie apart: `atol + rtol * |expected|`.

    Attributes:
        rtol: The relative part.
        atol: The absolute part.
        because: What asks for it, in words: a type, a value, an operator, a measurement.
    """

    rtol: float
    atol: float
    because: str = field(default="", compare=False)


EXACT = Tolerance(0.0, 0.0)

_TOLERANCES: dict[str, Tolerance] = {
    # A layer adds up some hundred to some thousand products, in an order that no kernel promises;
    # the error grows with the root of their number, up to a few dozen units of the last place
    # (2^-52, 2^-23, 2^-10, 2^-7) over a decoder whose values are of the order of 1.
    "float64": Tolerance(rtol=1e-10, atol=1e-10),
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "complex128": Tolerance(rtol=1e-10, atol=1e-10),
    "complex64": Tolerance(rtol=1e-4, atol=1e-5),
    # Kernels round once at the end or after each operation, so a result may be off by some units.
    "float16": Tolerance(rtol=5e-3, atol=5e-3),
    "bfloat16": Tolerance(rtol=4e-2, atol=4e-2),
    # One unit: the value before the last rounding may have lain on either side of a boundary.
    "float8_e4m3fn": Tolerance(rtol=2**-3, atol=2**-9),
    "float8_e4m3fnuz": Tolerance(rtol=2**-3, atol=2**-10),
    "float8_e5m2": Tolerance(rtol=2**-2, atol=2**-16),
    "float8_e5m2fnuz": Tolerance(rtol=2**-2, atol=2**-17),
}
"""By dtype. Every other dtype (integers, booleans, strings) has none: rounding cannot reach it."""

_NIBBLES = tuple(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn))
"""Dtypes that use the low half of a byte; the other half means nothing."""


def _number(text: str) -> bool | int | float | str:
    """Return the element that `text` spells; the text itself for what JSON has no number for."""
    if text in ("True", "False"):
        return text == "True"
    # An integer is not read as a float, which would round it; -0 is a float.
    if text.removeprefix("-").isdigit() and text != "-0":
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _spelled(element: bool | int | float | str) -> str:
    """Return the text of an element; for a float, as few digits as tell it apart."""
    if not isinstance(element, float):
        return str(element)
    short = f"{element:.9g}"
    return short if float(short) == element else f"{element:.17g}"


_ELEMENT = Form(bool | int | float | str, _number, _spelled)


@dataclass(frozen=True, slots=True)
class Mismatch(Record):
    """One element that differs.

    Attributes:
        index: Index of the element.
        expected: Value in the first array as text; a number in JSON if possible.
        actual: Value in the second array, likewise.
    """

    index: tuple[int, ...]
    expected: str
    actual: str

    JSON = ("index", Key("expected", form=_ELEMENT), Key("actual", form=_ELEMENT))

    def __str__(self) -> str:
        where = f"at {list(self.index)} " if self.index else ""
        return f"{where}is {self.actual}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How two values of one output differ.

    Attributes:
        name: Name of the output.
        bit_equal: Whether shape, dtype and every bit agree.
        within: Whether they agree as far as was asked for.
        max_abs_diff: Largest absolute difference over the elements that are finite in both; 0.0
            where there are none, and for strings; None if shape or dtype differ.
        first_mismatch: The first element that breaks what was asked for; None if `within`, or if
            shape or dtype differ.
        reason: What differs, in words; None if `within`.
    """

    name: str
    bit_equal: bool
    within: bool
    max_abs_diff: float | None
    first_mismatch: Mismatch | None = None
    reason: str | None = None


def tolerance_of(dtype: np.dtype[Any]) -> Tolerance:
    """Return the tolerance for results of `dtype`; none at all where rounding cannot reach."""
    return _TOLERANCES.get(dtype.name, EXACT)


def compare(
    name: str,
    expected: Array,
    actual: Array,
    tolerance: Tolerance | None = None,
    *,
    exact: bool | Mask = False,
) -> OutputDifference:
    """Compare two values of the output `name`.

    Args:
        name: Name of the output.
        expected: What the source computed.
        actual: What the result computed.
        tolerance: How far elements may lie apart; None for the tolerance of the dtype.
        exact: Whether every bit must agree (NaN payloads and signs of zero included), or for which
            elements: an array of booleans of the same shape. Elsewhere |actual - expected| <=
            atol + rtol * |expected|, NaN equals NaN, and infinities equal those of their sign.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        reason = (
            f"output `{name}` is of dtype {actual.dtype} and shape {actual.shape}, "
            f"expected {expected.dtype} and {expected.shape}"
        )
        return OutputDifference(name, False, False, None, reason=reason)
    differs = bits_differ(expected, actual)
    if not differs.any():
        return OutputDifference(name, True, True, 0.0)
    tolerance = tolerance or tolerance_of(expected.dtype)
    # Of a cache a few rows differ at most; the others need no room in a wider type.
    distance, is_close = _distances(expected[differs], actual[differs], tolerance)
    broken = ~is_close | (exact[differs] if isinstance(exact, np.ndarray) else exact)
    largest = float(distance.max(initial=0.0))
    if not broken.any():
        return OutputDifference(name, False, True, largest)
    place = int(np.flatnonzero(differs)[int(np.argmax(broken))])
    index = tuple(int(i) for i in np.unravel_index(place, differs.shape))
    mismatch = Mismatch(index, _text(expected[index]), _text(actual[index]))
    count = int(np.count_nonzero(broken))
    reason = f"output `{name}` {mismatch} ({count} of {differs.size} elements differ)"
    return OutputDifference(name, False, False, largest, mismatch, reason)


def compare_form(name: str, expected: Array, actual: Array) -> OutputDifference:
    """Compare shape and dtype of two values of the output `name`, whose elements are random.

    `max_abs_diff` is None unless all bits agree.
    """
    found = compare(name, expected, actual, exact=True)
    if found.within or found.first_mismatch is None:
        return found
    return OutputDifference(name, False, True, None)


def largest(values: Array, left_out: bool | Mask = False) -> float:
    """Return the largest finite magnitude in `values` but for `left_out`; 0.0 where there is none.

    A cache is large: nothing wider is made of it than has to be.
    """
    numbers = values.reshape(-1)
    looked_at = ~np.broadcast_to(np.asarray(left_out), values.shape).reshape(-1)
    found = 0.0
    for begin in range(0, numbers.size, _AT_A_TIME):
        part = numbers[begin : begin + _AT_A_TIME]
        magnitudes = np.abs(part.astype(np.complex128 if part.dtype.kind == "c" else np.float64))
        where = np.isfinite(magnitudes) & looked_at[begin : begin + _AT_A_TIME]
        found = max(found, float(np.max(magnitudes, initial=0.0, where=where)))
    return found


_AT_A_TIME = 1 << 18
"""Elements that are made wider at a time."""


def distances(one: Array, other: Array) -> tuple[float, float]:
    """Return the largest distance of two arrays of numbers, and the root of its mean square.

    Elements that are not finite in both are left out; shapes and dtypes must agree.
    """
    apart, _ = _distances(one, other, EXACT)
    return float(apart.max(initial=0.0)), math.sqrt(float(np.mean(apart**2))) if apart.size else 0.0


def bits_differ(expected: Array, actual: Array) -> Mask:
    """Return for each element whether any bit differs; shapes and dtypes must agree."""
    if expected.dtype == np.dtype(object):
        return np.asarray(expected != actual, np.bool_)
    if expected.dtype in _NIBBLES:
        low = np.uint8(0xF)
        return np.asarray((_words(expected, 1) ^ _words(actual, 1)) & low != 0)
    # Words of 8 bytes at most: a complex128 takes two of them.
    width = min(expected.dtype.itemsize, 8)
    differs = np.asarray(_words(expected, width) != _words(actual, width))
    per_element = differs.reshape(expected.size, expected.dtype.itemsize // width)
    return np.asarray(per_element.any(axis=1).reshape(expected.shape))


def _words(array: Array, width: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    # `ascontiguousarray` makes a scalar an array of one element, which can be viewed.
    return np.ascontiguousarray(array).view(f"u{width}")


def _distances(
    expected: Array, actual: Array, tolerance: Tolerance
) -> tuple[npt.NDArray[np.float64], Mask]:
    """Return how far apart elements are (0 unless both are finite), and whether that is close."""
    if expected.dtype == np.dtype(object):
        return np.zeros(expected.shape), np.asarray(expected == actual, np.bool_)
    if expected.dtype.kind in "biu" or expected.dtype.name in ("int4", "uint4"):
        distance = _integer_distances(expected, actual)
        atol = 0.0 if expected.dtype.kind == "b" else tolerance.atol
        return distance, distance <= atol
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = expected.astype(wide), actual.astype(wide)
        distance = np.abs(b - a)
        is_close = distance <= tolerance.atol + tolerance.rtol * np.abs(a)
    is_finite = np.isfinite(a) & np.isfinite(b)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(is_finite, distance, 0.0), np.where(is_finite, is_close, is_same)


def _integer_distances(expected: Array, actual: Array) -> npt.NDArray[np.float64]:
    # Differences of 64-bit integers may not fit their type, but do fit unsigned.
    is_signed = expected.dtype.kind == "i" or expected.dtype.name == "int4"
    wide = np.int64 if is_signed else np.uint64
    a, b = expected.astype(wide), actual.astype(wide)
    low, high = np.minimum(a, b).astype(np.uint64), np.maximum(a, b).astype(np.uint64)
    return (high - low).astype(np.float64)


def _text(value: Any) -> str:
    """Return one element as text that tells apart whatever differs in a bit."""
    if isinstance(value, str):
        return repr(value)
    array = np.asarray(value)
    if array.dtype.kind in "biuc" or array.dtype.name in ("int4", "uint4"):
        return str(value)
    number = float(value)
    if np.isnan(number):
        return f"nan (0x{array.tobytes()[::-1].hex()})"
    # As many digits as tell apart any two values of the type.
    return _spelled(number) if array.dtype.itemsize == 8 else f"{number:.9g}"


# Which rows of a cache a step has left as they were.


def kept_rows(past: Array, present: Array, axis: int | None) -> bool | Mask:
    """Return which elements of `present` belong to rows that are those of `past`, bit for bit.

    A row is everything at one batch index and one index of the sequence axis. Without an axis, what
    lies along the last one is a row. The result has the shape of `present`; it is False if the two
    do not fit each other.
    """
    if past.dtype != present.dtype or past.ndim != present.ndim or past.ndim == 0:
        return False
    if any(old > new for old, new in zip(past.shape, present.shape, strict=True)):
        return False
    region = tuple(slice(size) for size in past.shape)
    changed = bits_differ(past, present[region])
    outside = {past.ndim - 1} if axis is None else {*range(past.ndim)} - {0, axis}
    kept = np.zeros(present.shape, np.bool_)
    kept[region] = ~changed.any(axis=tuple(sorted(outside)), keepdims=True)
    if axis is not None and past.shape == present.shape and not kept.any():
        moved = moved_rows(past, present, axis)
        kept[(slice(None),) * axis + (slice(moved),)] = True
    return kept


def moved_rows(past: Array, present: Array, axis: int) -> int:
    """Return how many of the last rows of `past` are those of `present` from the first on.

    A cache that rolls drops its first rows for new ones. The first of several numbers is taken that
    fit; 0 if none does.
    """
    old, new = np.moveaxis(past, axis, 0), np.moveaxis(present, axis, 0)
    for start in range(1, len(old)):
        count = min(len(old) - start, len(new))
        # Most numbers are told from one row.
        if (
            not bits_differ(old[start], new[0]).any()
            and not bits_differ(old[start:][:count], new[:count]).any()
        ):
            return count
    return 0
