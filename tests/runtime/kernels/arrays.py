"""Arrays of every dtype for the tests of kernels, and when two are the same."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from onnx_kvtool.runtime.kernels.kernel import Context

DTYPES = [
    np.float32,
    np.float16,
    np.float64,
    np.bool_,
    np.uint8,
    np.int64,
    np.complex128,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
    ml_dtypes.int4,
    ml_dtypes.float4_e2m1fn,
    object,
]
_FEW_BITS = (np.bool_, ml_dtypes.int4, ml_dtypes.float4_e2m1fn)


def array(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return random bits, NaN payloads included, or random strings."""
    if dtype is object:
        strings = np.empty(shape, object)
        strings.reshape(-1)[:] = [f"s{n}" for n in rng.integers(0, 9999, strings.size)]
        return strings
    if dtype in _FEW_BITS:
        return rng.integers(0, 2, shape).astype(dtype)
    itemsize = np.dtype(dtype).itemsize
    return rng.integers(0, 256, (*shape, itemsize), np.uint8).view(dtype).reshape(shape)


def numbers(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers to compute with: random ones around 0, small whole ones if complex."""
    if np.dtype(dtype).kind == "c":  # numpy's loops round products of others in different ways
        return (rng.integers(-3, 4, shape) + 1j * rng.integers(-3, 4, shape)).astype(dtype)
    if np.dtype(dtype).kind in "iub":
        return array(rng, dtype, shape)
    return rng.normal(0, 9, shape).astype(dtype)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether shape, dtype and every bit are the same."""
    if a.dtype == object and b.dtype == object:
        return a.shape == b.shape and bool((a == b).all())
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def recording(opset: int = 18, outputs: int = 1) -> tuple[Context, list[str]]:
    """Return a context and the list that its warnings go to."""
    warnings: list[str] = []
    return Context(opset, outputs, warnings.append), warnings
