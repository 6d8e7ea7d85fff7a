"""Gather, GatherElements and GatherND."""

from __future__ import annotations

import math

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.indices import (
    count_indices,
    element_axis,
    element_places,
    slice_places,
)
from onnx_kvtool.runtime.kernels.kernel import Array, Lines

# Gather-1, -11 and -13.


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
        KernelError: If `axis` or an index is out of range.
    """
    axis = count_axis(axis, data.ndim)
    places = count_indices(indices, data.shape, axis).reshape(-1)
    taken = data.take(places, axis=axis)
    return (taken.reshape((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])),)


# GatherElements-11 and -13.


def gather_elements(data: Array, indices: Array, *, axis: int) -> tuple[Array]:
    """Take one element of `data` per index, whose other coordinates are those of the index.

    For a matrix and axis 0: `output[i, j] = data[indices[i, j], j]`.

    Args:
        data: (D0, ..., Dn), rank 1 or more, any dtype.
        indices: (I0, ..., In), int32 or int64; -s to s - 1 where s is the size of `axis`. Other
            dimensions are at most those of `data`. May be empty.
        axis: Axis of `data`, counted from the back if negative.

    Returns:
        One array with the shape of `indices` and the dtype of `data`.

    Raises:
        KernelError: If ranks or dimensions do not fit; if `axis` or an index is out of range.
    """
    places = element_places(indices, data.shape, element_axis(data, indices, axis))
    return (data.reshape(-1)[places].reshape(indices.shape),)


# GatherND-11, -12 and -13.


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
        KernelError: If ranks, shapes or k do not fit; if `batch_dims` or an index is out of range.
    """
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
            f"`indices` has tuples of {depth}, expected 1 to {data.ndim - batch_dims}: {shapes}"
        )
    places = slice_places(indices, data.shape, batch_dims=batch_dims)
    count = math.prod(data.shape[: batch_dims + depth])
    inner = data.shape[batch_dims + depth :]
    slices = data.reshape(count, math.prod(inner))
    return (slices.take(places, axis=0).reshape((*indices.shape[:-1], *inner)),)


# Operators that read elements from places given by indices.


LINES: Lines = {
    "Gather": {1: gather},
    "GatherElements": {11: gather_elements},
    "GatherND": {11: gather_nd},
}
"""Operators of this module with their kernels, oldest first."""
