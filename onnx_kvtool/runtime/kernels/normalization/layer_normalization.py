"""LayerNormalization and RMSNormalization: over the last axes."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_broadcasts
from onnx_kvtool.runtime.kernels.normalization.precision import Reals, floating_type, rounded
from onnx_kvtool.runtime.kernels.normalization.standardize import standardize

__all__ = ["layer_normalization_17", "rms_normalization_23"]


def layer_normalization_17(
    X: Array, Scale: Array, B: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, Array, Array]:
    """Standardize the axes from `axis` on, then scale and shift.

    The first stage is computed in `stash_type`, for a double as well; the normalized values are
    rounded to the type of `X`; the second stage is rounded once.

    Args:
        X: (..., normalized), rank 1 or more.
        Scale: Broadcasts to the shape of `X`.
        B: Broadcasts to the shape of `X`; None for zero.
        axis: The first axis that is normalized, counted from the back if negative.
        epsilon: Added to the variance.
        stash_type: 1 (float) or 16 (bfloat16); sums of the latter are float32.

    Returns:
        Y, of the shape and type of `X`; Mean and InvStdDev, of the type of `stash_type`, with the
        normalized axes of length 1.

    Raises:
        KernelError: If `axis` is outside the rank, a shape does not broadcast, or `stash_type` is
            another type.
    """
    front = count_axis(axis, X.ndim, of="X")
    check_broadcasts("Scale", Scale.shape, "X", X.shape)
    if B is not None:
        check_broadcasts("B", B.shape, "X", X.shape)
    if stash_type not in (1, 16):
        raise KernelError(f"`stash_type` is {stash_type}, expected 1 (float) or 16 (bfloat16)")
    stash = floating_type(stash_type, "stash_type")
    with np.errstate(all="ignore"):
        stage = widened(X.astype(stash, copy=False))
        result = standardize(stage, tuple(range(front, X.ndim)), epsilon, stash)
        y = widened(result.normalized.astype(X.dtype, copy=False)) * widened(Scale)
        if B is not None:
            y += widened(B)
    return (
        y.astype(X.dtype, copy=False),
        result.mean.astype(stash, copy=False),
        result.inverse.astype(stash, copy=False),
    )


def rms_normalization_23(
    X: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array]:
    """Divide by the root of the mean square over the axes from `axis` on, then scale.

    The first stage is computed in `stash_type` and its result rounded to the type of `X`.

    Args:
        X: (..., normalized), rank 1 or more.
        scale: Broadcasts to the shape of `X`; may be of another type.
        axis: The first axis that is normalized, counted from the back if negative.
        epsilon: Added to the mean square.
        stash_type: 1 (float), 10 (float16), 11 (double) or 16 (bfloat16); the sums of 16-bit types
            are float32.

    Returns:
        Y, of the shape of `X` and the type of `scale`.

    Raises:
        KernelError: If `axis` is outside the rank, `scale` does not broadcast, or `stash_type` is
            another type.
    """
    front = count_axis(axis, X.ndim, of="X")
    check_broadcasts("scale", scale.shape, "X", X.shape)
    stash = floating_type(stash_type, "stash_type")
    axes = tuple(range(front, X.ndim))
    with np.errstate(all="ignore"):
        stage = widened(X.astype(stash, copy=False))
        square = rounded(_mean_square(stage, axes), stash)
        root = rounded(np.sqrt(square + square.dtype.type(epsilon)), stash)
        normalized = rounded(stage / root, stash).astype(X.dtype, copy=False)
        return ((widened(normalized) * widened(scale)).astype(scale.dtype, copy=False),)


def _mean_square(x: Reals, axes: tuple[int, ...]) -> Reals:
    count = math.prod(x.shape[axis] for axis in axes)
    total = np.add.reduce(x * x, axis=axes, keepdims=True)
    return np.asarray(total / x.dtype.type(count))
