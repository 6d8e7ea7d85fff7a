"""Activations that keep positive numbers: Relu and its kin."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation.apply import apply
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_broadcasts

__all__ = ["leaky_relu_1", "p_relu_1", "p_relu_7", "relu_1", "thresholded_relu_10"]

_Consumed = tuple[int, ...] | None


def relu_1(X: Array, *, consumed_inputs: _Consumed = None) -> tuple[Array]:
    """Return max(0, x), for integers too; NaN stays NaN. `consumed_inputs` has no meaning."""
    return (np.asarray(np.maximum(X, np.zeros((), X.dtype))),)


def leaky_relu_1(X: Array, *, alpha: float, consumed_inputs: _Consumed = None) -> tuple[Array]:
    """Return alpha * x for x < 0, else x. `consumed_inputs` has no meaning."""
    return apply(lambda x: np.where(x < 0, alpha * x, x), X)


def p_relu_1(X: Array, slope: Array, *, consumed_inputs: _Consumed = None) -> tuple[Array]:
    """Compute PRelu-1 and -6: one slope, or one for each channel.

    Args:
        X: (N, C, ...), or any shape with one slope.
        slope: One element, or (C,).
        consumed_inputs: Without a meaning today; version 1 has it.

    Raises:
        KernelError: If `slope` has another number of elements.
    """
    channels = X.shape[1] if X.ndim > 1 else 1
    if slope.size == 1:
        return p_relu_7(X, slope.reshape(()))
    if slope.shape != (channels,):
        raise KernelError(
            f"`slope` has shape {slope.shape}, expected one element or ({channels},): the channels "
            f"of `X` with shape {X.shape}"
        )
    return p_relu_7(X, slope.reshape(-1, *(1,) * (X.ndim - 2)))


def p_relu_7(X: Array, slope: Array) -> tuple[Array]:
    """Compute PRelu from version 7 on: slope * x for x < 0, else x.

    Integers, from version 9 on, wrap around where the product overflows, as numpy's.

    Args:
        X: Any shape.
        slope: Broadcasts to the shape of `X`.

    Raises:
        KernelError: If `slope` does not broadcast to `X`.
    """
    check_broadcasts("slope", slope.shape, "X", X.shape)
    if X.dtype.kind in "iu":
        x, factor = np.asarray(X), np.asarray(slope)
        with np.errstate(all="ignore"):
            product = np.multiply(x, factor, dtype=X.dtype)
        return (np.where(np.less(x, 0), product, x),)
    return apply(lambda x: np.where(x < 0, widened(slope) * x, x), X)


def thresholded_relu_10(X: Array, *, alpha: float) -> tuple[Array]:
    """Return x for x > alpha, else 0, which is what NaN gives."""
    return apply(lambda x: np.where(x > alpha, x, 0), X)
