"""Operators that exporters write where ONNX has none, or has one of other attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.movement.choosing import range_11
from onnx_kvtool.runtime.kernels.movement.slicing import trilu as standard_trilu

__all__ = [
    "c_dist",
    "complex_mul",
    "complex_mul_conj",
    "inverse",
    "range_",
    "rfft",
    "trilu",
    "unfold_tensor",
]

_WIDE = {"float32": np.complex64, "float64": np.complex128}


def c_dist(A: Array, B: Array, *, metric: str) -> tuple[Array]:
    """Return the distances of rows of (M, N) to rows of (K, N): (M, K).

    onnxruntime (1.32) takes them from products, which loses what is small beside the rows.

    Raises:
        KernelError: For a metric other than `sqeuclidean` and `euclidean`, or another shape.
    """
    refuse_value("metric", metric, "sqeuclidean", "euclidean")
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[1] or not A.shape[1]:
        raise KernelError(f"`A` and `B` have shapes {A.shape} and {B.shape}, expected rows alike")
    with np.errstate(all="ignore"):
        apart = [((A.astype(np.float64) - row) ** 2).sum(axis=1) for row in B.astype(np.float64)]
        found = np.stack(apart, axis=1) if apart else np.zeros((len(A), 0))
        found = np.sqrt(found) if metric == "euclidean" else found
    return (found.astype(A.dtype),)


def complex_mul(A: Array, B: Array) -> tuple[Array]:
    """Return the products of complex numbers, (..., 2) each; what is in front broadcasts."""
    return (_of_parts(_parts(A) * _parts(B), A.dtype),)


def complex_mul_conj(A: Array, B: Array) -> tuple[Array]:
    """Return the products of complex numbers, (..., 2) each, the second one conjugated."""
    return (_of_parts(_parts(A) * np.conj(_parts(B)), A.dtype),)


def _parts(x: Array) -> npt.NDArray[np.complexfloating[Any, Any]]:
    if x.shape[-1:] != (2,):
        raise KernelError(f"an input has shape {x.shape}, expected 2 parts along its last axis")
    wide = np.ascontiguousarray(widened(x))
    return np.asarray(wide.view(_WIDE[wide.dtype.name])[..., 0])


def _of_parts(x: npt.NDArray[np.complexfloating[Any, Any]], dtype: np.dtype[np.generic]) -> Array:
    return narrowed(np.stack([x.real, x.imag], axis=-1), dtype)


def inverse(X: Array) -> tuple[Array]:
    """Return the inverses of matrices (..., N, N).

    Raises:
        KernelError: If they are not square, or one has none; onnxruntime gives infinities.
    """
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise KernelError(f"`X` has shape {X.shape}, expected square matrices")
    try:
        return (np.linalg.inv(X.astype(np.float64)).astype(X.dtype),)
    except np.linalg.LinAlgError:
        raise KernelError("a matrix of `X` has no inverse") from None


def range_(start: Array, limit: Array, delta: Array | None = None) -> tuple[Array]:
    """Count from `start` up to `limit` by `delta`, or by 1; each is one element."""
    return range_11(start, limit, np.ones((), start.dtype) if delta is None else delta)


def rfft(X: Array, *, normalized: int, onesided: int, signal_ndim: int) -> tuple[Array]:
    """Return the transform of the last `signal_ndim` axes, half of the last one: (..., n, 2).

    Raises:
        KernelError: If it is to be normalized, or to have both sides, or more axes than `X`.
    """
    refuse_value("normalized", normalized, 0)
    refuse_value("onesided", onesided, 1)
    if not 1 <= signal_ndim <= X.ndim:
        raise KernelError(f"`signal_ndim` is {signal_ndim}, expected 1 to {X.ndim}")
    found = np.fft.rfftn(X.astype(np.float64), axes=range(X.ndim - signal_ndim, X.ndim))
    return (np.stack([found.real, found.imag], axis=-1).astype(X.dtype),)


def trilu(X: Array, k: Array | None = None, *, upper: int) -> tuple[Array]:
    """Keep one triangle of each matrix; see Trilu of ONNX."""
    return standard_trilu(X, k, upper=upper)


def unfold_tensor(input: Array, *, dim: int, size: int, step: int) -> tuple[Array]:
    """Return all windows of `size` elements along an axis, one every `step`: (..., size).

    Raises:
        KernelError: If a window is empty, or longer than the axis; if `step` is below 1.
    """
    axis = count_axis(dim, input.ndim, of="input")
    if size < 1 or step < 1 or size > input.shape[axis]:
        raise KernelError(
            f"`size` is {size} and `step` is {step}, expected 1 or more, and no window longer than "
            f"axis {axis}, {input.shape[axis]}"
        )
    windows = sliding_window_view(input, size, axis=axis)
    every = [slice(None)] * windows.ndim
    every[axis] = slice(None, None, step)
    return (np.ascontiguousarray(windows[tuple(every)]),)
