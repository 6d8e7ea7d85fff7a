"""Normalizations of onnxruntime: two that stand in the default domain, two with a residual.

LayerNormalization and SimplifiedLayerNormalization are put into the default domain by its optimiser
and its model builder; those of `com.microsoft` add a residual first. Types and shapes are those of
onnxruntime 1.31.1 on a CPU: everything is computed in float32, float64 for a double, and rounded
once; the sum of a residual is normalized as it is before it is rounded.
Where onnxruntime takes the mean of squares less the square of the mean, which cancels, these take
the mean squared distance.
"""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import (
    Reals,
    Standardized,
    check_broadcasts,
    check_shape,
    standardize,
)

__all__ = [
    "layer_normalization",
    "simplified_layer_normalization",
    "skip_layer_normalization",
    "skip_simplified_layer_normalization",
]

_FLOAT = np.dtype(np.float32)


def layer_normalization(
    X: Array, Scale: Array, B: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, ...]:
    """Standardize the axes from `axis` on, then scale and shift.

    Args:
        X: (..., normalized), rank 1 or more.
        Scale: Broadcasts to the shape of `X`; may be of another type.
        B: Likewise, of the type of `Scale`; None for zero.
        axis: The first axis that is normalized, counted from the back if negative.
        epsilon: Added to the variance.
        stash_type: 1.

    Returns:
        Y, of the shape of `X` and the type of `Scale`; Mean and InvStdDev, float32, with the
        normalized axes of length 1.

    Raises:
        KernelError: If `axis` is outside the rank, a shape does not broadcast, or `stash_type` is
            another, which onnxruntime has no kernel for.
    """
    axes = _axes(X, axis, stash_type)
    check_broadcasts("Scale", Scale.shape, "X", X.shape)
    if B is not None:
        check_broadcasts("B", B.shape, "X", X.shape)
    return _scaled(_standardized(widened(X), axes, epsilon), Scale, B)


def simplified_layer_normalization(
    X: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, ...]:
    """Divide by the root of the mean square over the axes from `axis` on, then scale.

    Args:
        X: (..., normalized), rank 1 or more.
        scale: Broadcasts to the shape of `X`; may be of another type.
        axis: The first axis that is normalized, counted from the back if negative.
        epsilon: Added to the mean square.
        stash_type: 1.

    Returns:
        Y, of the shape of `X` and the type of `scale`; and inv_std_var, one divided by the root,
        float32, with the normalized axes of length 1.

    Raises:
        KernelError: As for `layer_normalization`.
    """
    axes = _axes(X, axis, stash_type)
    check_broadcasts("scale", scale.shape, "X", X.shape)
    y, _, inverse = _scaled(_of_root(widened(X), axes, epsilon), scale, None)
    return y, inverse


def skip_layer_normalization(
    input: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float,
) -> tuple[Array, ...]:
    """Add a residual and a bias, and standardize the last axis of the sum, then scale and shift.

    Args:
        input: (batch, sequence, hidden), or (tokens, hidden).
        skip: Of the shape of `input`, or without its batch, or with a batch of 1.
        gamma: (hidden,).
        beta: (hidden,); None for zero.
        bias: (hidden,), added to the sum; None for zero.
        epsilon: Added to the variance.

    Returns:
        The normalized sum; mean and inv_std_var, float32, with a last axis of 1; and the sum.

    Raises:
        KernelError: For another rank or shape.
    """
    total = _sum(input, skip, {"gamma": gamma, "beta": beta, "bias": bias})
    result = _scaled(_standardized(total, (total.ndim - 1,), epsilon), gamma, beta)
    return *result, narrowed(total, input.dtype)


def skip_simplified_layer_normalization(
    input: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float
) -> tuple[Array, ...]:
    """Add a residual and a bias, and divide the last axis of the sum by the root mean square.

    Args:
        input: (batch, sequence, hidden), or (tokens, hidden).
        skip: Of the shape of `input`, or without its batch, or with a batch of 1.
        gamma: (hidden,), the scale.
        bias: (hidden,), added to the sum; None for zero.
        epsilon: Added to the mean square.

    Returns:
        The normalized sum; mean, which is 0, and inv_std_var, float32, with a last axis of 1; and
        the sum.

    Raises:
        KernelError: For another rank or shape.
    """
    total = _sum(input, skip, {"gamma": gamma, "bias": bias})
    result = _scaled(_of_root(total, (total.ndim - 1,), epsilon), gamma, None)
    return *result, narrowed(total, input.dtype)


def _axes(x: Array, axis: int, stash_type: int) -> tuple[int, ...]:
    if stash_type != 1:
        raise KernelError(f"`stash_type` is {stash_type}, expected 1 (float)")
    return tuple(range(count_axis(axis, x.ndim, of="X"), x.ndim))


def _standardized(x: Reals, axes: tuple[int, ...], epsilon: float) -> Standardized:
    with np.errstate(all="ignore"):
        return standardize(x, axes, epsilon, x.dtype)


def _of_root(x: Reals, axes: tuple[int, ...], epsilon: float) -> Standardized:
    """Return x divided by the root of its mean square, a mean of zero, and one by the root."""
    count = math.prod(x.shape[axis] for axis in axes)
    with np.errstate(all="ignore"):
        square = np.asarray(np.add.reduce(x * x, axis=axes, keepdims=True) / x.dtype.type(count))
        root = np.sqrt(square + x.dtype.type(epsilon))
        return Standardized(x / root, np.zeros_like(root), np.asarray(1 / root))


def _scaled(result: Standardized, scale: Array, shift: Array | None) -> tuple[Array, Array, Array]:
    """Return the normalized values scaled and rounded, the mean and the inverse in float32."""
    with np.errstate(all="ignore"):
        y = result.normalized * widened(scale)
        if shift is not None:
            y = y + widened(shift)
        return (
            narrowed(y, scale.dtype),
            result.mean.astype(_FLOAT, copy=False),
            result.inverse.astype(_FLOAT, copy=False),
        )


def _sum(input: Array, skip: Array, vectors: dict[str, Array | None]) -> Reals:
    """Return input + skip + bias, not rounded, after the shapes have been checked."""
    if input.ndim not in (2, 3):
        raise KernelError(f"`input` has shape {input.shape}, expected two or three dimensions")
    batches = {input.shape, input.shape[-2:], (1, *input.shape[-2:])}
    if skip.shape not in batches - {(1, *input.shape)}:
        raise KernelError(
            f"`skip` has shape {skip.shape}, expected {input.shape} as `input`, perhaps without a "
            "batch or with one of 1"
        )
    for name, vector in vectors.items():
        if vector is not None:
            check_shape(name, vector.shape, input.shape[-1:], "the last dimension of `input`")
    bias = vectors["bias"]
    with np.errstate(all="ignore"):
        total: Reals = widened(input) + widened(skip)
        return total if bias is None else total + widened(bias)
