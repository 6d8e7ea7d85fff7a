"""Conversion between numbers and strings."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.formats import INTEGER_RANGES, is_float, is_integer
from onnx_kvtool.runtime.kernels.conversion.rounding import round_to
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["from_strings", "to_strings"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPECIAL = {"inf": np.inf, "+inf": np.inf, "-inf": -np.inf, "nan": np.nan}


def to_strings(x: Array) -> Array:
    """Return numbers in plain notation, never with an exponent.

    Floats of numpy are written with the fewest digits that give the same number of their type back,
    the ml_dtypes ones with those of float32, and with `.0` if they are whole, as onnx.reference
    does; the special ones as `INF`, `-INF` and `NaN`, the spellings that Cast reads. Booleans are
    `1` and `0`, as in onnxruntime 1.31; the text does not say.

    Args:
        x: Of any real dtype or bool, any shape.

    Returns:
        An array of str objects of the shape of `x`.
    """
    if x.dtype == np.bool_ or is_integer(x.dtype):
        wide = x.astype(np.uint64 if x.dtype == np.uint64 else np.int64)
        texts = [str(number) for number in wide.reshape(-1).tolist()]
    else:
        floats: npt.NDArray[Any] = (
            x if x.dtype in (np.float16, np.float64) else x.astype(np.float32)
        )
        texts = [_write_float(number) for number in floats.reshape(-1)]
    result = np.empty(x.shape, object)
    result.reshape(-1)[:] = texts
    return result


def _write_float(number: np.floating[Any]) -> str:
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "-INF" if number < 0 else "INF"
    return np.format_float_positional(number, unique=True, trim="0")


def from_strings(
    x: Array, dtype: np.dtype[np.generic], *, to_round: bool = False
) -> tuple[Array, str | None]:
    """Return the numbers that strings write, rounded once to their type.

    Read are decimal literals with or without an exponent, and INF, +INF, -INF and NaN in any case;
    white space around them is ignored. To integers, a fraction is cut off, as in the example of
    Cast (`100.5` to 100), where the text also calls the result undefined. To bool, zero is false.

    Args:
        x: An array of str objects, any shape.
        dtype: An integer type, bool, float16, bfloat16, float32 or float64.
        to_round: Whether the result, in float64, will be rounded further by the caller; numbers
            are then kept on their side of every midpoint of a narrower type.

    Returns:
        A new array of the shape of `x`, and what was undefined about it, if anything.

    Raises:
        KernelError: If a string is no number, which the text leaves undefined, or no number that
            the integer type has.
    """
    result = np.zeros(x.shape, dtype)
    undefined = None
    for index in np.ndindex(x.shape):
        text = str(x[index])
        where = f"`input`{list(index)} is {text!r}"
        stripped = text.strip()
        if stripped.lower() in _SPECIAL:
            if is_integer(dtype):
                raise KernelError(f"{where}, which {dtype} cannot hold")
            result[index] = np.asarray(_SPECIAL[stripped.lower()]).astype(dtype)
        elif _NUMBER.fullmatch(stripped) is None:
            raise KernelError(f"{where}, expected a decimal number, INF, -INF or NaN")
        elif is_float(dtype):
            exact_side = to_round or dtype != np.float64
            number = _nearest_side(stripped) if exact_side else np.asarray(float(stripped))
            result[index] = round_to(number, dtype)
        else:
            exact = _fraction(stripped, where)
            if dtype == np.bool_:
                result[index] = exact != 0
                continue
            result[index] = _whole(exact, dtype, where)
            if exact.denominator != 1 and undefined is None:
                undefined = f"{where}: a fraction cast to {dtype} is undefined, taken as truncated"
    return result, undefined


def _nearest_side(text: str) -> Array:
    """Return a decimal number in float64, nudged so that rounding it on is rounding the text."""
    value = float(text)
    if not 1e-300 < abs(value) < 1e300:
        return np.asarray(value)
    error = Fraction(text) - Fraction(value)
    bits = np.asarray(value).view(np.int64)
    if error == 0 or bits & 1:
        return np.asarray(value)
    # Odd last bits never lie on a midpoint of a narrower type.
    return np.asarray(np.nextafter(value, np.inf if error > 0 else -np.inf))


def _fraction(text: str, where: str) -> Fraction:
    _, _, exponent = text.lower().partition("e")
    if len(exponent) > 4:  # more digits than any type has, and too many to write out
        raise KernelError(f"{where}, expected an exponent of at most 3 digits")
    return Fraction(text)


def _whole(exact: Fraction, dtype: np.dtype[np.generic], where: str) -> int:
    number = int(exact)
    least, highest = INTEGER_RANGES[dtype]
    if not least <= number <= highest:
        raise KernelError(f"{where}, which {dtype} cannot hold: expected {least} to {highest}")
    return number
