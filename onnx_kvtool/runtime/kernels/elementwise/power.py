"""Pow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.conversion.convert import convert
from onnx_kvtool.runtime.kernels.elementwise.broadcast import broadcast_shape
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["pow_7"]

Numbers = npt.NDArray[Any]


def pow_7(X: Array, Y: Array, *, context: Context) -> tuple[Array]:
    """Compute Pow from version 7 on: `X` to the power of `Y`, broadcast, of the dtype of `X`.

    From version 12 on the dtypes may differ. Floats of one dtype are computed in it, narrow ones in
    float32; with exponents of another dtype in float32 if both fit it, else in float64.

    Integer powers of integers are exact and wrap around, by squaring; negative exponents are
    truncated towards zero as rational numbers are (2 to the -1 is 0), where 0 gives the least
    integer, as in onnxruntime 1.31. Integer bases with float exponents are computed in float64 and
    cast back, truncated.

    Args:
        X: The base, any numeric dtype that the version allows.
        Y: The exponent, likewise.
        context: Told where a result is undefined: zero to a negative power among integers, and
            results that an integer type cannot hold.

    Raises:
        KernelError: If the shapes do not broadcast.
    """
    broadcast_shape([X.shape, Y.shape], ["X", "Y"])
    base: Numbers = X
    exponent: Numbers = Y
    with np.errstate(all="ignore"):
        if _whole(base) and _whole(exponent):
            return (_integer_power(base, exponent, context),)
        if _whole(base):
            power = np.power(base.astype(np.float64), exponent.astype(np.float64))
            return (convert(np.asarray(power), base.dtype, warn=context.warn),)
        if base.dtype == exponent.dtype:
            power = np.power(widened(base), widened(exponent))
            return (narrowed(np.asarray(power), base.dtype),)
        wide = _working_dtype(base.dtype, exponent.dtype)
        power = np.power(base.astype(wide), exponent.astype(wide))
        return (convert(np.asarray(power), base.dtype),)


def _whole(x: Numbers) -> bool:
    return x.dtype.kind in "iu"


def _working_dtype(
    base: np.dtype[np.generic], exponent: np.dtype[np.generic]
) -> np.dtype[np.generic]:
    """Return float32 where both fit it, else float64; an integer exponent of 32 bits does not."""
    small = exponent.itemsize <= 2 or exponent == np.float32
    return np.dtype(np.float32 if small and base.itemsize <= 4 else np.float64)


def _integer_power(base: Numbers, exponent: Numbers, context: Context) -> Array:
    base, exponent = np.broadcast_arrays(base, exponent)
    negative = exponent < 0
    left = np.where(negative, 0, exponent).astype(np.uint64)
    square, result = base.copy(), np.ones(base.shape, base.dtype)
    while left.any():
        result = np.where(left & np.uint64(1), result * square, result)
        square = square * square
        left = left >> np.uint64(1)
    if negative.any():
        # 1/x is whole only for x of 1 and -1, and its truncation is 0 otherwise.
        inverse = (base == 1).astype(base.dtype)
        if base.dtype.kind == "i":
            odd = exponent % 2 != 0
            inverse = np.where(base == -1, np.where(odd, -1, 1), inverse).astype(base.dtype)
        zero = negative & (base == 0)
        if zero.any():
            context.warn("`X` is 0 where `Y` is negative, which has no integer result")
            inverse[zero] = np.iinfo(base.dtype).min
        result = np.where(negative, inverse, result)
    return np.asarray(result, base.dtype)
