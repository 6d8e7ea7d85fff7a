"""Rounding to narrow floating-point types: once, to the nearest, ties to even."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.conversion.formats import FORMATS, Format
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["as_doubles", "round_to"]

Doubles = npt.NDArray[np.float64]

_LOW_BITS = 0xFFF
_STICKY = 0x800
_EXACT = 1 << 53


def as_doubles(x: Array) -> Doubles:
    """Return numbers in float64, such that rounding them further is rounding the originals.

    Every type but int64 and uint64 fits float64. Integers of more than 53 bits are given one bit
    that says that lower ones were there ("round to odd"), so they stay on their side of every
    midpoint of a type of up to 40 bits of mantissa; float64 itself is not among these.

    Args:
        x: Of any real dtype or bool, any shape.

    Returns:
        A new array, or `x` itself if it is float64.
    """
    if x.dtype not in (np.int64, np.uint64):
        return np.asarray(x, np.float64)
    whole: npt.NDArray[Any] = x
    low: npt.NDArray[Any] = np.asarray(_LOW_BITS, x.dtype)
    large = whole >= _EXACT
    if x.dtype == np.int64:
        large |= whole <= -_EXACT
    if large.any():
        sticky = np.where((whole & low) != 0, _STICKY, 0).astype(x.dtype)
        whole = np.where(large, (whole & ~low) | sticky, whole)
    return np.asarray(whole, np.float64)


def round_to(x: Array, dtype: np.dtype[np.generic], *, saturate: bool = True) -> Array:
    """Return numbers rounded once to a type of `FORMATS` or to float32 or float64.

    The tables of Cast-25 for the float 8 types; "infinity if out of range" for the others that
    have one; the largest number for those without infinities (float4e2m1, float6), as the page
    on float 4 of the onnx documentation has it. A NaN keeps its sign where the type has one; types
    without NaN give -0, as the backend cases of Cast-23 do (that page says 6).

    Args:
        x: Of any real dtype or bool, any shape.
        dtype: The type wanted.
        saturate: Whether float 8 types give their largest number for what is out of range; else
            infinity, or NaN where there is none.

    Returns:
        An array of the shape of `x`; `x` itself if it has the type already.
    """
    if x.dtype == dtype:
        return x
    with np.errstate(all="ignore"):
        if dtype == np.float64:
            return x.astype(dtype)
        # numpy rounds once from each of its own types, ml_dtypes from float32.
        if dtype == np.float32 or (dtype == np.float16 and x.dtype.kind in "fiub"):
            return x.astype(dtype)
        if dtype in (np.float16, ml_dtypes.bfloat16) and _fits_float32(x.dtype):
            return x.astype(np.float32).astype(dtype)
        return _round(as_doubles(x), FORMATS[dtype], saturate)


def _fits_float32(dtype: np.dtype[np.generic]) -> bool:
    return dtype in FORMATS or dtype in (np.float32, np.bool_, ml_dtypes.float8_e8m0fnu)


def _round(x: Doubles, target: Format, saturate: bool) -> Array:
    _, exponent = np.frexp(x)  # 2^(exponent-1) <= |x| < 2^exponent
    unit = np.maximum(exponent - 1, target.min_exponent) - target.mantissa
    # Scaling by powers of two is exact, so rint rounds the number itself, to the nearest even.
    rounded = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    largest = target.largest
    if target.overflow == "largest" or (target.overflow == "float8" and saturate):
        rounded = np.clip(rounded, -largest, largest)
    else:
        beyond = np.copysign(np.inf if target.infinite else np.nan, rounded)
        rounded = np.where(np.abs(rounded) > largest, beyond, rounded)
    if target.overflow == "largest":
        rounded = np.where(np.isnan(rounded), -0.0, rounded)
    return np.asarray(rounded).astype(target.dtype)  # exact
