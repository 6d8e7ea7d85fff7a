"""The type to compute in where rounding after every step would lose too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.conversion.formats import FORMATS
from onnx_kvtool.runtime.kernels.half import widen_half
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["is_narrow", "narrowed", "widened"]

_HALF = np.dtype(np.float16)


def is_narrow(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is a float below 32 bits: float16, bfloat16, float 8 and narrower."""
    return dtype in FORMATS


def widened(x: Array) -> npt.NDArray[Any]:
    """Return narrow floats in float32, which holds them all; other arrays as they are."""
    if x.dtype == _HALF:
        return widen_half(x.astype(np.float16, copy=False))
    return x.astype(np.float32) if is_narrow(x.dtype) else x


def narrowed(x: npt.NDArray[Any], dtype: np.dtype[np.generic]) -> Array:
    """Return results in the dtype of the operands, rounded from float32 if that is narrow."""
    if x.dtype == dtype:
        return x
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype, copy=False)
