"""The formats of element types, and rounding to them."""

from __future__ import annotations

import functools
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.kernel import Array, Dtype

# The element types whose numbers are rounded here.


finfo: Any = ml_dtypes.finfo
_iinfo: Any = ml_dtypes.iinfo
Overflow = Literal["infinity", "float8", "largest"]

OVERFLOW: dict[Dtype, Overflow] = {
    np.dtype(np.float16): "infinity",
    np.dtype(ml_dtypes.bfloat16): "infinity",
    np.dtype(ml_dtypes.float8_e4m3fn): "float8",
    np.dtype(ml_dtypes.float8_e4m3fnuz): "float8",
    np.dtype(ml_dtypes.float8_e5m2): "float8",
    np.dtype(ml_dtypes.float8_e5m2fnuz): "float8",
    np.dtype(ml_dtypes.float6_e2m3fn): "largest",
    np.dtype(ml_dtypes.float6_e3m2fn): "largest",
    np.dtype(ml_dtypes.float4_e2m1fn): "largest",
}
"""The floats below 32 bits with a sign and a mantissa, and what numbers become that round to more
than the largest one: infinity; by the tables of Cast for float 8, where the attribute `saturate`
decides; or the largest one, for types without infinity and NaN."""

INTEGER_RANGES: dict[Dtype, tuple[int, int]] = {
    np.dtype(kind): (int(_iinfo(kind).min), int(_iinfo(kind).max))
    for kind in (
        *(ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4, np.int8, np.uint8),
        *(np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    )
}
"""The least and the greatest number of each integer type."""


def is_float(dtype: Dtype) -> bool:
    """Return whether a dtype is a real floating-point type, of numpy or of ml_dtypes."""
    return dtype.kind == "f" or dtype in OVERFLOW or dtype == ml_dtypes.float8_e8m0fnu


def is_integer(dtype: Dtype) -> bool:
    """Return whether a dtype is an integer type, of numpy or of ml_dtypes; bool is none."""
    return dtype in INTEGER_RANGES


# Rounding to narrow floating-point types: once, to the nearest, ties to even.


Doubles = npt.NDArray[np.float64]

_LOW_BITS = 0xFFF
_STICKY = 0x800
_EXACT = 1 << 53


def as_doubles(x: Array) -> Doubles:
    """Return numbers in float64, such that rounding them further is rounding the originals.

    Every type but int64 and uint64 fits float64. In integers of more than 53 bits, one bit stands
    for all lower ones ("round to odd"). So they stay on their side of every midpoint of a type with
    a mantissa of up to 40 bits. float64 has more.
    """
    if x.dtype not in (np.int64, np.uint64):
        return np.asarray(x, np.float64)
    whole, low = x, np.asarray(_LOW_BITS, x.dtype)
    large = whole >= _EXACT
    if x.dtype == np.int64:
        large |= whole <= -_EXACT
    if large.any():
        sticky = np.where((whole & low) != 0, _STICKY, 0).astype(x.dtype)
        whole = np.where(large, (whole & ~low) | sticky, whole)
    return np.asarray(whole, np.float64)


def round_to(x: Array, dtype: Dtype, *, saturate: bool = True) -> Array:
    """Return numbers rounded once to a type of `OVERFLOW` or to float32 or float64.

    Float 8 types follow the tables of Cast-25. For numbers out of range, other types give infinity;
    those without one (float4e2m1, float6) give the largest number, as onnx's page on float 4 says.
    A NaN keeps its sign where the type has one; types without NaN give -0, as the backend cases of
    Cast-23 do (that page says 6).

    For what is out of range, float 8 types give their largest number; without `saturate` they give
    infinity, or NaN where there is none. The result is `x` itself if it has the type already.
    """
    if x.dtype == dtype:
        return x
    if dtype == np.float64:
        return x.astype(dtype)
    # numpy rounds once from each of its own types, ml_dtypes from float32.
    if dtype == np.float32 or (dtype == np.float16 and x.dtype.kind in "fiub"):
        return x.astype(dtype)
    if dtype in (np.float16, ml_dtypes.bfloat16) and _fits_float32(x.dtype):
        return x.astype(np.float32).astype(dtype)
    return _round(as_doubles(x), dtype, saturate)


def _fits_float32(dtype: Dtype) -> bool:
    return dtype in OVERFLOW or dtype in (np.float32, np.bool_, ml_dtypes.float8_e8m0fnu)


def _round(x: Doubles, dtype: Dtype, saturate: bool) -> Array:
    limits = finfo(dtype)
    overflow, largest = OVERFLOW[dtype], float(limits.max)
    _, exponent = np.frexp(x)  # 2^(exponent-1) <= |x| < 2^exponent
    unit = np.maximum(exponent - 1, limits.minexp) - limits.nmant
    # Scaling by powers of two is exact, so rint rounds the number itself, to the nearest even.
    rounded = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    if overflow == "largest" or (overflow == "float8" and saturate):
        rounded = np.clip(rounded, -largest, largest)
    else:  # an infinity becomes NaN below, where the type has none
        rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, rounded), rounded)
    if overflow == "largest":
        rounded = np.where(np.isnan(rounded), -0.0, rounded)
    return np.asarray(rounded).astype(dtype)  # exact


# Conversion to integer types.


def to_integers(x: Array, dtype: Dtype) -> Array:
    """Return numbers as an integer type of `INTEGER_RANGES`.

    Integers lose their higher bits, as Cast says. Floats are truncated towards zero. Cast leaves
    results out of range undefined; here they are those of numpy and onnxruntime 1.31 on x86-64, on
    every machine. Numbers go through int32 for types of up to 32 bits except uint32, and through
    int64 for the others. The least number of these stands for everything that does not fit (NaN and
    infinities too), and the higher bits are dropped. So 9.0 is -7 as int4, as the backend cases of
    Cast expect.
    """
    if x.dtype == np.bool_ or is_integer(x.dtype):
        return x.astype(dtype)
    if not _leaves(x, dtype):
        return as_doubles(x).astype(np.uint64 if dtype == np.uint64 else np.int64).astype(dtype)
    whole = np.trunc(as_doubles(x))
    if dtype == np.uint64:
        upper = (whole >= 2.0**63) & (whole < 2.0**64)
        result = _through(np.where(upper, 0.0, whole), 64).astype(np.uint64)
        result[upper] = whole[upper].astype(np.uint64)
        return result
    _, highest = INTEGER_RANGES[dtype]
    return _through(whole, 64 if highest >= 2**31 else 32).astype(dtype)


def beyond_integers(x: Array, dtype: Dtype) -> Array:
    """Return whether floats have no integer of a type: NaN, infinite or out of range."""
    if not _leaves(x, dtype):
        return np.zeros(x.shape, np.bool_)
    whole = np.trunc(as_doubles(x))
    least, highest = INTEGER_RANGES[dtype]
    # highest + 1 is a power of two, and so exact, where highest itself may not be.
    return np.asarray(~((whole >= float(least)) & (whole < float(highest + 1))))


def _leaves(x: Array, dtype: Dtype) -> bool:
    """Return whether any element is out of range or NaN; the least and the greatest show it."""
    if x.size == 0:
        return False
    doubles = as_doubles(x)
    low, high = np.trunc(doubles.min()), np.trunc(doubles.max())
    least, highest = INTEGER_RANGES[dtype]
    return not bool(low >= float(least) and high < float(highest + 1))


def _through(whole: Array, bits: int) -> Array:
    """Return whole floats as int64, or as the least integer of `bits` bits if out of its range."""
    edge = 2.0 ** (bits - 1)
    values = whole.astype(np.float64)
    fits = (values >= -edge) & (values < edge)
    return np.asarray(np.where(fits, values, -edge)).astype(np.int64)


# Conversion to float8e8m0, the powers of two that scale blocks of narrow numbers.


ROUND_MODES = ("up", "down", "nearest")
_BIAS = 127
_NAN = 255


def round_to_scale(x: Doubles, round_mode: str, *, saturate: bool) -> Array:
    """Return numbers as float8e8m0, by the table of Cast-24.

    Representable numbers stay unchanged, including 2^-127, which onnx.reference 1.23.2 rounds up;
    infinity saturates to the largest number, as in the table, and onnx.reference gives NaN. Without
    `saturate`, numbers outside of 2^-127 to 2^127 are NaN, even if rounding would bring them back.
    The table has two columns; the other combinations follow the same two rules. Where it leaves the
    result open, -0 is 0, and negative numbers give NaN.

    The round mode is `up` away from zero, `down` towards zero, or `nearest` with ties up.
    """
    fraction, exponent = np.frexp(np.abs(x))  # |x| = fraction * 2^exponent, fraction in [0.5, 1)
    power = exponent - 1
    if round_mode == "up":
        power = power + (fraction > 0.5)
    elif round_mode == "nearest":
        power = power + (fraction >= 0.75)
    low, high = 2.0**-_BIAS, 2.0**_BIAS
    quantized = np.clip(power, -_BIAS, _BIAS) + _BIAS
    quantized = np.where(x <= low, 0, quantized)
    quantized = np.where(x >= high, 2 * _BIAS, quantized)
    invalid = np.isnan(x) | (x < 0)
    if not saturate:
        invalid |= (x < low) | (x > high)
    quantized = np.where(invalid, _NAN, quantized)
    return np.asarray(quantized, np.uint8).view(ml_dtypes.float8_e8m0fnu)


# float16 without the conversions of numpy, which are slow, for subnormal numbers most of all.
#
# Measured with numpy 2.4 on a million elements: to float16 and back takes 4 ms, for subnormals 40;
# `round_to_half` takes 2 for either.

_EXPONENT = np.uint32(0x7F800000)
_GREATEST = np.float32(65504)

_FEW = 256
"""Up to so many elements numpy is faster, unless most are subnormal."""


def widen_half(values: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """Return float16 values as float32, each looked up by its bits."""
    return np.asarray(_half_values().take(values.view(np.uint16)))


def round_to_half(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return float32 values rounded to float16, ties to even, as float32.

    Adding a power of two whose last bit weighs as much as that of the float16 rounds to it. Beyond
    65504, after rounding, is infinity; the sign of zero is kept, and NaN stays NaN.
    """
    if values.size <= _FEW:
        return values.astype(np.float16).astype(np.float32)
    exponent = np.asarray(values.view(np.uint32) & _EXPONENT)
    # From 2^-14, below which all float16 have the same last bit, to where all become infinite.
    np.clip(exponent, np.uint32(113 << 23), np.uint32(143 << 23), out=exponent)
    exponent += np.uint32(13 << 23)
    power = exponent.view(np.float32)
    result = np.asarray(np.abs(values))
    result += power
    result -= power
    result[result > _GREATEST] = np.inf
    np.copysign(result, values, out=result)
    return result


@functools.cache
def _half_values() -> npt.NDArray[np.float32]:
    """Return the value of each float16 by its bits: (65536,)."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
