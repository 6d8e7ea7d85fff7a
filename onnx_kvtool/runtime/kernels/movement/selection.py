"""NonZero and Compress, all versions."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["compress", "non_zero"]


def non_zero(X: Array) -> tuple[Array]:
    """Return the coordinates of the elements that are not zero, in row-major order.

    NaN is not zero, -0 is; a string is not zero if it is not empty, as in numpy.

    Args:
        X: Rank r, any dtype.

    Returns:
        (r, N), int64; (0, N) for a scalar, N of 1 or 0.
    """
    if X.ndim == 0:
        return (np.zeros((0, int(bool(X))), np.int64),)
    return (np.array(np.nonzero(X), np.int64).reshape(X.ndim, -1),)


def compress(input: Array, condition: Array, *, axis: int | None) -> tuple[Array]:
    """Keep the slices for which a condition holds.

    Args:
        input: Rank 1 or more, any dtype.
        condition: (N,), bool, N at most the size of the axis; what is behind it is dropped.
        axis: Counted from the back if negative; None for `input` made one-dimensional.

    Returns:
        One array.

    Raises:
        KernelError: If `input` has rank 0; if `condition` is of another dtype or rank, or longer
            than the axis; if `axis` is out of range.
    """
    if input.ndim == 0:
        raise KernelError("`input` has rank 0, expected at least 1")
    if condition.dtype != np.bool_ or condition.ndim != 1:
        raise KernelError(
            f"`condition` is {condition.dtype} of shape {condition.shape}, expected bool of rank 1"
        )
    along = None if axis is None else count_axis(axis, input.ndim, of="input")
    size = math.prod(input.shape) if along is None else input.shape[along]
    if len(condition) > size:
        raise KernelError(
            f"`condition` has {counted(len(condition), 'element')}, expected at most {size}: "
            f"`input` has shape {input.shape}"
        )
    return (np.take(input, np.flatnonzero(condition), axis=along),)
