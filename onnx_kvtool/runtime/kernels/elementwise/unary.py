"""Operators of one operand that numpy computes as ONNX wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, KernelFunction

__all__ = ["absolute", "negative", "over_input", "over_x", "reciprocal", "round_even", "sign"]

Numbers = npt.NDArray[Any]
Compute = Callable[[Numbers], Any]


def over_x(compute: Compute) -> KernelFunction:
    """Return a kernel over `X` that applies a function of numpy to each element.

    Results keep the dtype: floats of 16 bits and bfloat16 are computed in float32 and rounded. What
    is not defined among the reals (the logarithm of a negative number) is NaN.
    """

    def kernel(X: Array) -> tuple[Array]:
        return (_apply(compute, X),)

    return kernel


def over_input(compute: Compute) -> KernelFunction:
    """As `over_x`, for the operators whose input is called `input`."""

    def kernel(input: Array) -> tuple[Array]:
        return (_apply(compute, input),)

    return kernel


def _apply(compute: Compute, x: Numbers) -> Array:
    with np.errstate(all="ignore"):
        return narrowed(np.asarray(compute(widened(x))), x.dtype)


def absolute(x: Numbers) -> Array:
    """Return absolute values; the least integer of a signed type stays what it is."""
    return np.asarray(x if x.dtype.kind == "u" else np.abs(x))


def negative(x: Numbers) -> Array:
    """Return -x; -0.0 for 0.0, and the least integer of a signed type stays what it is."""
    return np.asarray(np.negative(x))


def sign(x: Numbers) -> Array:
    """Return 1, -1 or 0; 0.0 for -0.0, and NaN for NaN, which the text does not mention."""
    return np.asarray(np.sign(x) + np.zeros((), x.dtype))


def reciprocal(x: Numbers) -> Array:
    """Return 1/x, rounded once; infinity with its sign for zeros."""
    return np.asarray(np.ones((), x.dtype) / x)


def round_even(x: Numbers) -> Array:
    """Return the nearest whole numbers, halves to the even one; the sign of zero is kept."""
    return np.asarray(np.rint(x))
