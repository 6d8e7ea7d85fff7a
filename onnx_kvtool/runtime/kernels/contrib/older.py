"""Operators that exporters wrote while ONNX had none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.gather import gather
from onnx_kvtool.runtime.kernels.gather import gather_nd as standard_gather_nd
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.movement.choosing import range_11
from onnx_kvtool.runtime.kernels.movement.choosing import unique as standard_unique
from onnx_kvtool.runtime.kernels.movement.slicing import pad_19
from onnx_kvtool.runtime.kernels.movement.slicing import trilu as standard_trilu

__all__ = [
    "c_dist",
    "complex_mul",
    "complex_mul_conj",
    "expand_dims",
    "gather_nd",
    "inverse",
    "is_all_finite",
    "mat_mul_integer_16",
    "mul_integer",
    "pad",
    "range_",
    "reduce_sum_integer",
    "rfft",
    "torch_embedding",
    "trilu",
    "unfold_tensor",
    "unique",
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


def expand_dims(X: Array, axis: Array) -> tuple[Array]:
    """Return `X` with an axis of size 1; `axis` is one int32 that counts in the result."""
    if axis.size != 1 or axis.ndim > 1:
        raise KernelError(f"`axis` has shape {axis.shape}, expected one element")
    place = count_axis(int(axis.reshape(())[()]), X.ndim + 1, of="Y")
    return (X.reshape(*X.shape[:place], 1, *X.shape[place:]),)


def gather_nd(data: Array, indices: Array) -> tuple[Array]:
    """Return the slices that rows of int32 or int64 indices address; see GatherND of ONNX."""
    return standard_gather_nd(data, indices.astype(np.int64), batch_dims=0)


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


def is_all_finite(*input: Array, isinf_only: int, isnan_only: int) -> tuple[Array]:
    """Return whether no element of any input is infinite or NaN, or one of them only: ().

    Raises:
        KernelError: If both flags are set.
    """
    if isinf_only and isnan_only:
        raise KernelError("`isinf_only` and `isnan_only` are both set, expected one of them")
    looks = np.isinf if isinf_only else np.isnan if isnan_only else lambda x: ~np.isfinite(x)
    return (np.array(not any(bool(looks(widened(x)).any()) for x in input)),)


def mat_mul_integer_16(A: Array, B: Array) -> tuple[Array]:
    """Return the product of matrices of 16-bit integers, of which int32 keeps the last 32 bits.

    Raises:
        KernelError: If both are uint16, where text and inference of onnxruntime (1.32) differ.
    """
    if A.dtype == B.dtype == np.uint16:
        raise KernelError("`A` and `B` are uint16, expected int16 for one of them")
    return ((A.astype(np.int64) @ B.astype(np.int64)).astype(np.int32),)


def mul_integer(
    A: Array, A_zero_point: Array | None, B: Array, B_zero_point: Array | None = None
) -> tuple[Array]:
    """Return (A - A_zero_point) * (B - B_zero_point) in int32."""
    pairs = ((A, A_zero_point), (B, B_zero_point))
    a, b = (x.astype(np.int32) - (0 if z is None else z.astype(np.int32)) for x, z in pairs)
    return (np.asarray(a * b, np.int32),)


def pad(data: Array, pads: Array, value: Array | None = None, *, mode: str) -> tuple[Array]:
    """Add or remove elements at the ends of all axes; see Pad of ONNX.

    Args:
        data: Of n axes.
        pads: (2 n,) or (1, 2 n), int64.
        value: One element; None for 0.
        mode: `constant`, `edge`, `reflect` or `wrap`.
    """
    fill = None if value is None else value.reshape(())
    return pad_19(data, pads.reshape(-1), fill, mode=mode)


def range_(start: Array, limit: Array, delta: Array | None = None) -> tuple[Array]:
    """Count from `start` up to `limit` by `delta`, or by 1; each is one element."""
    return range_11(start, limit, np.ones((), start.dtype) if delta is None else delta)


def reduce_sum_integer(data: Array, *, axes: Sequence[int], keepdims: int) -> tuple[Array]:
    """Return sums of int8 in int32, of uint8 in uint32; without axes, over all of them."""
    along = tuple(count_axis(axis, data.ndim, of="data") for axis in axes) or None
    wide = np.uint32 if data.dtype == np.uint8 else np.int32
    return (np.asarray(data.sum(axis=along, keepdims=keepdims != 0, dtype=np.int64)).astype(wide),)


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


def torch_embedding(
    weight: Array,
    indices: Array,
    padding_idx: Array | None = None,
    scale_grad_by_freq: Array | None = None,
) -> tuple[Array]:
    """Return rows of (N, M) by index: (..., M); the other inputs matter to gradients alone."""
    return gather(weight, indices, axis=0)


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


def unique(x: Array) -> tuple[Array, Array, Array]:
    """Return the different elements of (N,) as they occur, which of them each is, and how many.

    NaN equals NaN, as in numpy; for onnxruntime (1.32) it does not.
    """
    if x.ndim != 1:
        raise KernelError(f"`x` has shape {x.shape}, expected one axis")
    y, _, idx, counts = standard_unique(x, axis=None, sorted=0)
    return y, idx, counts
