"""Clip."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.formats import INTEGER_RANGES
from onnx_kvtool.runtime.kernels.elementwise.scalars import read_scalar
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["clip_6", "clip_11"]


def clip_6(input: Array, *, min: float, max: float) -> tuple[Array]:
    """Compute Clip-6: elements limited to `min` and `max`, the bounds in the dtype of `input`."""
    with np.errstate(all="ignore"):
        low, high = np.asarray(min).astype(input.dtype), np.asarray(max).astype(input.dtype)
    return (_limit(input, low, high),)


def clip_11(
    input: Array, min: Array | None = None, max: Array | None = None, *, context: Context
) -> tuple[Array]:
    """Compute Clip from version 11 on: Min(max, Max(input, min)); NaN stays.

    A bound that is absent is the least or the greatest finite number of the dtype, so an infinity
    becomes that number, by the text and in onnxruntime 1.31; the body of the function and
    onnx.reference let infinities pass. Where `min` is above `max`, every element is `max`.

    Args:
        input: Any shape, any numeric dtype.
        min: The lower bound, a scalar of the dtype of `input`.
        max: The upper bound, likewise.
        context: Told if a bound has shape (1,).

    Raises:
        KernelError: If a bound is no scalar or of another dtype.
    """
    least, greatest = _limits(input.dtype)
    low = least if min is None else _bound(min, "min", input, context)
    high = greatest if max is None else _bound(max, "max", input, context)
    return (_limit(input, low, high),)


def _bound(bound: Array, name: str, input: Array, context: Context) -> Array:
    if bound.dtype != input.dtype:
        raise KernelError(f"`{name}` is of dtype {bound.dtype}, expected {input.dtype} as `input`")
    return read_scalar(bound, name, context)


def _limits(dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
    if dtype in INTEGER_RANGES:
        least, greatest = INTEGER_RANGES[dtype]
        return np.asarray(least, dtype), np.asarray(greatest, dtype)
    finfo: Any = ml_dtypes.finfo
    return np.asarray(finfo(dtype).min, dtype), np.asarray(finfo(dtype).max, dtype)


def _limit(x: Array, low: Array, high: Array) -> Array:
    numbers: npt.NDArray[Any] = x
    return np.asarray(np.minimum(high, np.maximum(numbers, low)), x.dtype)
