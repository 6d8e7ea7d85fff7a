"""MeanVarianceNormalization: zero mean and unit variance over given axes."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.axes import count_axes
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.standardize import mean_over

__all__ = ["mean_variance_normalization_9"]

_EPSILON = 1e-9
"""Added to the standard deviation by the schema's function body; the formula has none."""


def mean_variance_normalization_9(X: Array, *, axes: tuple[int, ...]) -> tuple[Array]:
    """Compute (X - mean) / (standard deviation + 1e-9), so that constants become zero.

    16-bit types are computed in float32 and rounded once.

    Args:
        X: Any shape that has the axes.
        axes: Axes over which mean and variance are taken, counted from the back if negative.

    Raises:
        KernelError: If an axis is outside the rank, or given twice.
    """
    front = count_axes(axes, X.ndim, of="X")
    x = widened(X)
    with np.errstate(all="ignore"):
        distance = x - mean_over(x, front)
        deviation = np.sqrt(mean_over(distance * distance, front))
        y = distance / (deviation + _EPSILON)
        return (np.asarray(y.astype(X.dtype, copy=False)),)
