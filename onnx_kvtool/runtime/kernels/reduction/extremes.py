"""Reductions to the greatest and the least element."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_kvtool.runtime.kernels.conversion.formats import INTEGER_RANGES
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["maximum", "minimum"]


def maximum(data: Array, axes: tuple[int, ...], keepdims: bool, context: Context) -> Array:
    """Take the greatest element; of nothing, -infinity or the least number of the type.

    NaN wins, which the text does not mention; false is less than true.
    """
    numbers = widened(data)
    start = _edge(numbers.dtype, least=True)
    return narrowed(np.asarray(np.max(numbers, axes, keepdims=keepdims, initial=start)), data.dtype)


def minimum(data: Array, axes: tuple[int, ...], keepdims: bool, context: Context) -> Array:
    """Take the least element; of nothing, infinity or the greatest number of the type.

    NaN wins, which the text does not mention; false is less than true.
    """
    numbers = widened(data)
    start = _edge(numbers.dtype, least=False)
    return narrowed(np.asarray(np.min(numbers, axes, keepdims=keepdims, initial=start)), data.dtype)


def _edge(dtype: np.dtype[np.generic], *, least: bool) -> Any:
    if dtype == np.bool_:
        return not least
    if dtype in INTEGER_RANGES:
        return dtype.type(INTEGER_RANGES[dtype][0 if least else 1])
    return dtype.type(-np.inf if least else np.inf)
