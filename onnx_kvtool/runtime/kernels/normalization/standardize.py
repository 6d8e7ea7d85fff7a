"""Zero mean and unit variance, which most normalizations begin with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from onnx_kvtool.runtime.kernels.normalization.precision import Reals, rounded

__all__ = ["Standardized", "mean_over", "standardize"]


class Standardized(NamedTuple):
    """Values in the type in which they were computed, float32 or float64.

    Attributes:
        normalized: (x - mean) / sqrt(variance + epsilon), of the shape of x.
        mean: Of the shape of x with the axes of length 1.
        inverse: 1 / sqrt(variance + epsilon), of the shape of `mean`.
    """

    normalized: Reals
    mean: Reals
    inverse: Reals


def standardize(
    x: Reals, axes: tuple[int, ...], epsilon: float, stash: np.dtype[Any]
) -> Standardized:
    """Standardize over some axes, with the variance as the mean squared distance from the mean.

    The function bodies of onnx 1.23.2 take the mean of squares less the square of the mean, which
    cancels where the mean is great; the texts of the operators do not.

    Args:
        x: Values rounded to `stash` already.
        axes: Axes over which mean and variance are taken; of length 0 they make NaN.
        epsilon: Added to the variance.
        stash: Type of the computation; one of 16 bits rounds mean, inverse and normalized values,
            and accumulates in float32.
    """
    mean = rounded(mean_over(x, axes), stash)
    distance = x - mean
    variance = mean_over(distance * distance, axes)
    inverse = rounded(1 / np.sqrt(variance + variance.dtype.type(epsilon)), stash)
    return Standardized(rounded(distance * inverse, stash), mean, inverse)


def mean_over(x: Reals, axes: tuple[int, ...]) -> Reals:
    """Return the mean over some axes, which stay with length 1; over none of them, NaN."""
    count = x.dtype.type(np.prod([x.shape[axis] for axis in axes]))
    return np.asarray(x.sum(axis=axes, keepdims=True) / count)
