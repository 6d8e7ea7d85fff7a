"""Range-11 and -27."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_room

__all__ = ["range_11", "range_27"]

_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def range_11(start: Array, limit: Array, delta: Array) -> tuple[Array]:
    """Count from `start` up to `limit` by `delta`.

    `output[i] = start + i * delta` for `ceil((limit - start) / delta)` elements, none if that is
    negative. The elements are computed by the formula in the dtype, as the text has it;
    onnxruntime (1.31.1) adds `delta` again and again, which drifts. The text leaves open how the
    number is rounded: the quotient is taken in double, as in onnxruntime and numpy.

    Args:
        start: One element, rank 0 or 1, of a float or integer dtype.
        limit: The same dtype; exclusive.
        delta: The same dtype; not 0.

    Returns:
        (N,), of that dtype.

    Raises:
        KernelError: If dtypes differ; if an input is not one element; if `delta` is 0; if a float
            is not finite.
    """
    first, last, step = _scalars(start, limit, delta)
    dtype = start.dtype
    if dtype.kind in "iu":
        number = max(-((int(first) - int(last)) // int(step)), 0)
        require_room((number,), np.dtype(np.int64))
        # What overflows in between comes back: every element lies between `start` and `limit`.
        steps = np.arange(number, dtype=np.int64) * np.int64(step)
        return ((np.int64(first) + steps).astype(dtype),)
    with np.errstate(all="ignore"):
        number = _number(float(last - first), float(step))
        require_room((number,), np.dtype(np.float64))
        return ((first + np.arange(number).astype(dtype) * step).astype(dtype),)


def range_27(start: Array, limit: Array, delta: Array, *, stash_type: int) -> tuple[Array]:
    """Count from `start` up to `limit` by `delta`; see `range_11`.

    float16 and bfloat16 are computed in float32 and rounded once at the end.

    Args:
        start: One element, rank 0 or 1, of a float or integer dtype.
        limit: The same dtype; exclusive.
        delta: The same dtype; not 0.
        stash_type: Number of the element type in which float16 and bfloat16 are computed: 1,
            float32.

    Returns:
        (N,), of the dtype of the inputs.

    Raises:
        KernelError: As `range_11`; if `stash_type` is another number.
    """
    if stash_type != 1:
        raise KernelError(f"`stash_type` is {stash_type}, expected 1")
    _scalars(start, limit, delta)
    if start.dtype not in _HALVES:
        return range_11(start, limit, delta)
    (wide,) = range_11(*(value.astype(np.float32) for value in (start, limit, delta)))
    return (wide.astype(start.dtype),)


def _scalars(*values: Array) -> list[Any]:
    dtype = values[0].dtype
    scalars: list[Any] = []
    for name, value in zip(("start", "limit", "delta"), values, strict=True):
        if value.dtype != dtype:
            raise KernelError(f"`{name}` is of dtype {value.dtype}, expected {dtype} as `start`")
        if value.size != 1 or value.ndim > 1:
            raise KernelError(f"`{name}` has shape {value.shape}, expected a scalar")
        scalars.append(value.reshape(())[()])
        if not math.isfinite(float(scalars[-1])):
            raise KernelError(f"`{name}` is {scalars[-1]}, expected a finite number")
    if float(scalars[2]) == 0:
        raise KernelError("`delta` is 0")
    return scalars


def _number(distance: float, step: float) -> int:
    if not math.isfinite(distance / step):
        raise KernelError("`limit` - `start` overflows")
    return max(math.ceil(distance / step), 0)
