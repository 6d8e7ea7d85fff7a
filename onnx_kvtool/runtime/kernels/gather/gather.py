"""Gather-1, -11 and -13."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.indices import check_index_dtype, count_indices
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["gather"]


def gather(data: Array, indices: Array, *, axis: int) -> tuple[Array]:
    """Take slices of `data` along one axis.

    Negative indices count from the back. Gather-1 only wants indices "within bounds"; they are
    taken so there too, as in onnxruntime.

    Args:
        data: (D0, ..., Dr-1), r of 1 or more, any dtype.
        indices: Any shape, rank 0 included, int32 or int64; -s to s - 1 where s is the size of
            `axis`.
        axis: Axis of `data`, counted from the back if negative.

    Returns:
        One array of shape `data.shape[:axis] + indices.shape + data.shape[axis + 1:]`.

    Raises:
        KernelError: If `indices` is of another dtype; if `axis` or an index is out of range.
    """
    check_index_dtype(indices)
    axis = count_axis(axis, data.ndim)
    places = count_indices(indices, data.shape, axis).reshape(-1)
    taken = np.take(data, places, axis=axis)
    return (taken.reshape((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])),)
