"""GatherND-11, -12 and -13."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.indices import check_index_dtype
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.places import slice_places

__all__ = ["gather_nd"]


def gather_nd(data: Array, indices: Array, *, batch_dims: int = 0) -> tuple[Array]:
    """Take a slice of `data` per tuple of indices.

    Args:
        data: (B0, ..., D0, ...), rank r of 1 or more, any dtype.
        indices: (B0, ..., I0, ..., k), rank q of 1 or more, int64; k from 1 to r - `batch_dims`.
            Component j lies in -Dj to Dj - 1.
        batch_dims: Number b of leading axes that both have in common, less than q and r; version 11
            has none.

    Returns:
        One array of shape `indices.shape[:-1] + data.shape[b + k:]`.

    Raises:
        KernelError: If ranks, shapes or k do not fit; if `indices` is not int64; if `batch_dims` or
            an index is out of range.
    """
    check_index_dtype(indices, only_int64=True)
    for name, value in (("data", data), ("indices", indices)):
        if value.ndim == 0:
            raise KernelError(f"`{name}` has rank 0, expected at least 1")
    shapes = f"`data` has shape {data.shape} and `indices` {indices.shape}"
    limit = min(data.ndim, indices.ndim) - 1
    if not 0 <= batch_dims <= limit:
        raise KernelError(f"`batch_dims` is {batch_dims}, expected 0 to {limit}: {shapes}")
    if indices.shape[:batch_dims] != data.shape[:batch_dims]:
        raise KernelError(
            f"`indices` has leading dimensions {indices.shape[:batch_dims]}, expected "
            f"{data.shape[:batch_dims]} as `data` with `batch_dims` {batch_dims}: {shapes}"
        )
    depth = indices.shape[-1]
    if not 1 <= depth <= data.ndim - batch_dims:
        raise KernelError(
            f"`indices` holds tuples of {depth}, expected 1 to {data.ndim - batch_dims}: {shapes}"
        )
    places = slice_places(indices, data.shape, batch_dims=batch_dims)
    count = math.prod(data.shape[: batch_dims + depth])
    inner = data.shape[batch_dims + depth :]
    slices = data.reshape(count, math.prod(inner))
    return (np.take(slices, places, axis=0).reshape((*indices.shape[:-1], *inner)),)
