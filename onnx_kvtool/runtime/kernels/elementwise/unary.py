"""Operators of one operand, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.rounding import INTEGER_RANGES, finfo
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, read_scalar, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context, KernelFunction, Lines, Value

# Operators of one operand that numpy computes as ONNX wants them.


Compute = Callable[[Array], Any]


def over_x(compute: Compute) -> KernelFunction:
    """Return a kernel over `X` that applies a function of numpy to each element.

    Results keep the dtype: floats of 16 bits and bfloat16 are computed in float32 and rounded. What
    is not defined among the reals (the logarithm of a negative number) is NaN. The least integer of
    a signed type has itself as its absolute and its negated value. Halves are rounded to the even
    number, and zeros keep their sign.
    """

    def kernel(X: Array) -> Array:
        return apply(compute, X)

    return kernel


def over_input(compute: Compute) -> KernelFunction:
    """As `over_x`, for the operators whose input is called `input`."""

    def kernel(input: Array) -> Array:
        return apply(compute, input)

    return kernel


def apply(compute: Compute, x: Array) -> Array:
    """Return what a function makes of each element, in the dtype of the elements.

    It is given float64 for a double and float32 for all other floats.
    """
    return narrowed(compute(widened(x)), x.dtype)


def sign(x: Array) -> Any:
    """Return 1, -1 or 0; 0.0 for -0.0, and NaN for NaN, which the text does not mention."""
    return np.sign(x) + np.zeros((), x.dtype)


def reciprocal(x: Array) -> Any:
    """Return 1/x, rounded once; infinity with its sign for zeros."""
    return np.ones((), x.dtype) / x


# Clip.


def clip_6(
    input: Array,
    min: Array | float | None = None,
    max: Array | float | None = None,
    *,
    context: Context,
) -> Array:
    """Compute Clip from version 6 on: Min(max, Max(input, min)); NaN stays.

    A bound is rounded to the dtype of `input` where it is an attribute. An absent one is the least
    or the greatest finite number of the dtype. So an infinity becomes that number, by the text and
    in onnxruntime 1.31. The body of the function and onnx.reference let infinities pass. Where
    `min` is above `max`, every element is `max`.

    Raises:
        KernelError: If a bound is no scalar.
    """
    dtype = input.dtype
    least, greatest = INTEGER_RANGES.get(dtype) or (finfo(dtype).min, finfo(dtype).max)
    low = np.asarray(least if min is None else min, dtype)
    high = np.asarray(greatest if max is None else max, dtype)
    above = np.maximum(input, read_scalar(low, "min", context))
    return np.asarray(np.minimum(read_scalar(high, "max", context), above), dtype)


# Dropout.


def dropout_7(
    data: Array,
    ratio: Array | float | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    is_before_10: bool = False,
    context: Context,
) -> tuple[Array, Array]:
    """Compute Dropout from version 7 on: `data` and a mask of true, unless training.

    The mask of version 7 has the dtype of `data`. In training mode, which came with version 12,
    elements are dropped at random, which no text fixes; they are drawn as onnx.reference 1.23 does,
    by the legacy generator of numpy, whose stream for a seed never changes. Without a seed it is 0,
    so that runs can be compared.

    `ratio` is 0.5 if absent, and read in training mode only. What is left is scaled by
    1 / (1 - ratio); the mask is true where it is.

    Raises:
        KernelError: If `ratio` or `training_mode` is no scalar; in training mode, if `ratio` is
            outside [0, 1) or `seed` outside what numpy takes.
    """
    everything = np.ones(data.shape, data.dtype if is_before_10 else np.bool_)
    if training_mode is None or not read_scalar(training_mode, "training_mode", context):
        return data, everything
    given = np.asarray(0.5 if ratio is None else ratio)
    share = float(np.float64(read_scalar(given, "ratio", context)))
    if not 0 <= share < 1:
        raise KernelError(f"`ratio` is {share}, expected 0 or more and less than 1")
    if share == 0:
        return data, everything
    if seed is not None and not 0 <= seed < 1 << 32:
        raise KernelError(f"`seed` is {seed}, expected 0 to {(1 << 32) - 1}")
    context.warn("elements are dropped at random in training mode, as onnx.reference draws them")
    generator = np.random.RandomState(0 if seed is None else seed)
    left = generator.uniform(0, 1, data.shape) >= share
    wide = widened(data)
    scale = np.asarray(1 / (1 - share), wide.dtype)
    return narrowed(np.where(left, wide * scale, 0), data.dtype), np.asarray(left)


# The error function over arrays, which numpy lacks, and the operator Erf.


_Doubles = npt.NDArray[np.float64]

# Coefficients from the highest power down. Near 0, where 1 - erfc would cancel,
# erf(x) = x + x P(x^2)/Q(x^2) for |x| <= 0.84375, with the digits of fdlibm's s_erf.c:
# Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Developed at SunPro, a Sun
# Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software is
# freely granted, provided that this notice is preserved.
_NEAR_P = (
    -2.37630166566501626084e-05,
    -5.77027029648944159157e-03,
    -2.84817495755985104766e-02,
    -3.25042107247001499370e-01,
    1.28379167095512558561e-01,
)
_NEAR_Q = (
    -3.96022827877536812320e-06,
    1.32494738004321644526e-04,
    5.08130628187576562776e-03,
    6.50222499887672944485e-02,
    3.97917223959155352819e-01,
    1.0,
)
# Beyond, erf(x) = 1 - erfc(x) with erfc(x) = exp(-x^2) P(x)/Q(x) for 0.46875 <= x <= 4: W. J.
# Cody, Rational Chebyshev Approximations for the Error Function, Mathematics of Computation 23
# (1969), 631-637, with the digits of Netlib's SPECFUN. It serves up to 6 here: erfc is below 2e-8
# there, so that a relative error of 1e-9 does not show in 1 - erfc.
_FAR_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_FAR_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_SPLIT = 0.84375
_ONE_FROM = 6.0  # erf rounds to 1 in double precision
_BLOCK = 1 << 14  # elements whose temporaries stay in the cache


def erf(x: Array) -> Array:
    """Return the error function of each element, rounded to its dtype.

    Computed in float64 by rational approximations. Measured against `math.erf` on 10^6
    points of [-7, 7] and on magnitudes down to 1e-300: at most 2 units in the last place of float64
    (mostly 1), and half a unit of float32.

    Integers are computed in float64 and truncated on the way back, as Erf-9 allows them. Infinities
    give 1 and -1, NaN gives NaN, and zero keeps its sign.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty(flat.shape, flat.dtype)
    for start in range(0, flat.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = _doubles(flat[block].astype(np.float64)).astype(flat.dtype)
    return result.reshape(np.shape(x))


def erf_9(input: Array) -> Array:
    """Compute Erf of versions 9 and 13 element by element; see `erf`."""
    return erf(input)


def _doubles(x: _Doubles) -> _Doubles:
    size = np.abs(x)
    result = np.copysign(1.0, x)
    near = size <= _SPLIT
    few = x[near]
    result[near] = few + few * _ratio(few * few, _NEAR_P, _NEAR_Q)
    far = ~near & (size < _ONE_FROM)
    y = size[far]
    result[far] = np.copysign(1.0 - _gauss(y) * _ratio(y, _FAR_P, _FAR_Q), x[far])
    result[np.isnan(x)] = np.nan
    return result


def _gauss(y: _Doubles) -> _Doubles:
    """Return exp(-y^2) without the rounding error of y^2, which the exponential would amplify."""
    coarse = np.trunc(y * 16.0) / 16.0  # its square is exact
    rest = (y - coarse) * (y + coarse)
    return np.asarray(np.exp(-coarse * coarse) * np.exp(-rest))


def _ratio(x: _Doubles, p: tuple[float, ...], q: tuple[float, ...]) -> _Doubles:
    return np.asarray(_horner(x, p) / _horner(x, q))


def _horner(x: _Doubles, coefficients: tuple[float, ...]) -> _Doubles:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= x
        value += coefficient
    return value


# IsNaN and IsInf.


def is_nan_9(X: Array) -> Array:
    """Compute IsNaN from version 9 on; types without NaN have none."""
    return np.asarray(np.isnan(X), np.bool_)


def is_inf_10(X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """Compute IsInf from version 10 on; types without infinities have none."""
    infinite = np.isinf(X)
    if not detect_negative:
        infinite = infinite & ~np.signbit(X)
    if not detect_positive:
        infinite = infinite & np.signbit(X)
    return infinite


LINES: Lines = {
    "Neg": {6: over_x(np.negative)},
    "Abs": {6: over_x(np.abs)},
    "Sign": {9: over_input(sign)},
    "Floor": {6: over_x(np.floor)},
    "Ceil": {6: over_x(np.ceil)},
    "Round": {11: over_x(np.rint)},
    "Reciprocal": {6: over_x(reciprocal)},
    "Sqrt": {6: over_x(np.sqrt)},
    "Exp": {6: over_input(np.exp)},
    "Log": {6: over_input(np.log)},
    "Sin": {7: over_input(np.sin)},
    "Cos": {7: over_input(np.cos)},
    "Tan": {7: over_input(np.tan)},
    "Asin": {7: over_input(np.arcsin)},
    "Acos": {7: over_input(np.arccos)},
    "Atan": {7: over_input(np.arctan)},
    "Sinh": {9: over_input(np.sinh)},
    "Cosh": {9: over_input(np.cosh)},
    "Tanh": {6: over_input(np.tanh)},
    "Asinh": {9: over_input(np.arcsinh)},
    "Acosh": {9: over_input(np.arccosh)},
    "Atanh": {9: over_input(np.arctanh)},
    "Erf": {9: erf_9},
    "Not": {1: over_x(np.logical_not)},
    "BitwiseNot": {18: over_x(np.invert)},
    "Clip": {6: clip_6},
    "IsNaN": {9: is_nan_9},
    "IsInf": {10: is_inf_10},
    "Dropout": {7: functools.partial(dropout_7, is_before_10=True), 10: dropout_7},
}
"""Operators of this module with their kernels, oldest first."""
