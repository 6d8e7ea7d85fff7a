"""Reductions that add or multiply."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.convert import convert
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["l1", "l2", "log_sum", "log_sum_exp", "mean", "prod", "sum_", "sum_square"]

Axes = tuple[int, ...]
Numbers = npt.NDArray[Any]


def sum_(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Add; 0 of nothing. Integers wrap around; narrow floats are added in float32."""
    return narrowed(_sum(widened(data), axes, keepdims), data.dtype)


def mean(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Add and divide by the number of elements; integers are truncated towards zero.

    Sums of integers are taken in 64 bits. The mean of nothing, which the text leaves undefined, is
    NaN with a warning.

    Raises:
        KernelError: If integers are averaged over nothing.
    """
    count = math.prod(data.shape[axis] for axis in axes)
    if data.dtype.kind in "iu":
        if count == 0:
            raise KernelError(f"the mean of no integers is undefined: {_along(data, axes)}")
        wide = np.uint64 if data.dtype.kind == "u" else np.int64
        total = _sum(data.astype(wide), axes, keepdims)
        quotient = np.abs(total) // wide(count) if wide is np.int64 else total // wide(count)
        return np.asarray(np.where(total < 0, -quotient, quotient)).astype(data.dtype)
    if count == 0:
        context.warn(f"the mean of nothing is undefined, taken as NaN: {_along(data, axes)}")
    total = _sum(widened(data), axes, keepdims)
    return narrowed(np.asarray(total / np.asarray(count, total.dtype)), data.dtype)


def prod(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Multiply; 1 of nothing. Integers wrap around; narrow floats are multiplied in float32."""
    wide = widened(data)
    return narrowed(np.asarray(np.prod(wide, axes, wide.dtype, keepdims=keepdims)), data.dtype)


def l1(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Add absolute values; 0 of nothing. As `sum_` otherwise."""
    return narrowed(_sum(np.abs(widened(data)), axes, keepdims), data.dtype)


def sum_square(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Add squares; 0 of nothing. As `sum_` otherwise."""
    return narrowed(_sum(np.square(widened(data)), axes, keepdims), data.dtype)


def l2(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Take the root of the sum of squares; 0 of nothing.

    Narrow floats and float32 are computed in float64, where the squares cannot overflow; so are
    integers, whose roots are truncated.
    """
    squares = np.square(data.astype(np.float64))
    return convert(np.sqrt(_sum(squares, axes, keepdims)), data.dtype, warn=context.warn)


def log_sum(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Take the logarithm of the sum; -infinity of nothing, where the type has it.

    Narrow floats are computed in float32, integers in float64 and truncated.
    """
    wide = data.astype(np.float64) if data.dtype.kind in "iu" else widened(data)
    return convert(np.asarray(np.log(_sum(wide, axes, keepdims))), data.dtype, warn=context.warn)


def log_sum_exp(data: Array, axes: Axes, keepdims: bool, context: Context) -> Array:
    """Take the logarithm of the sum of exponentials; -infinity of nothing, where the type has it.

    The greatest element is taken out before the exponential, which cannot overflow then. Narrow
    floats are computed in float32, integers in float64 and truncated.
    """
    wide: Numbers = data.astype(np.float64) if data.dtype.kind in "iu" else widened(data)
    greatest = np.max(wide, axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(greatest), greatest, 0).astype(wide.dtype)
    logarithm = np.log(_sum(np.exp(wide - shift), axes, True)) + shift
    result = logarithm if keepdims else np.squeeze(logarithm, axes)
    return convert(np.asarray(result), data.dtype, warn=context.warn)


def _sum(numbers: Numbers, axes: Axes, keepdims: bool) -> Numbers:
    return np.asarray(np.sum(numbers, axes, numbers.dtype, keepdims=keepdims))


def _along(data: Array, axes: Axes) -> str:
    return f"`data` has shape {data.shape}, reduced along {axes}"
