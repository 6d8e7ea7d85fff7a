"""Indices along an axis, checked as a whole, the places that they name, and the Gathers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines

# Indices along an axis: checked as a whole, and counted from the front.


Indices = npt.NDArray[np.int64]


def count_indices(
    indices: Array, shape: Ints, axis: int, *, component: int | None = None
) -> Indices:
    """Return indices along one axis counted from the front.

    One pass over the indices when none is negative; nothing is copied then.

    Args:
        indices: Any shape, int32 or int64; with `component`, (..., k), the tuples of an `ND`
            operator.
        shape: Shape of `data`.
        axis: The axis of `data` that is indexed, counted from the front.
        component: The component of the tuples to look at; None when each index stands alone.

    Returns:
        Shape of `indices`, without the last dimension if there is a `component`; int64.

    Raises:
        KernelError: If an index lies outside -s to s - 1, where s is the size of the axis. The
            message names the first such index and its position.
    """
    size = shape[axis]
    part: npt.NDArray[np.integer] = indices if component is None else indices[..., component]
    if part.size == 0:
        return part.astype(np.int64)
    # A negative index is huge when read as unsigned, so that one maximum checks both ends.
    unsigned = np.uint64 if part.dtype == np.int64 else np.uint32
    if int(part.view(unsigned).max()) < size:
        return part.astype(np.int64, copy=False)
    low, high = int(part.min()), int(part.max())
    if low < -size or high >= size:
        outside = (part < -size) | (part >= size)
        first = np.unravel_index(int(outside.argmax()), outside.shape)
        position = tuple(int(n) for n in first) + (() if component is None else (component,))
        expected = f"{-size} to {size - 1}" if size else "none"
        raise KernelError(
            f"{subscript('indices', position)} is {part[first]}, expected {expected}: "
            f"axis {axis} of `data` with shape {shape}"
        )
    counted: Indices = part.astype(np.int64)
    shift = counted >> 63  # -1, all bits set, where negative: faster than a mask
    shift &= size
    counted += shift
    return counted


def subscript(name: str, position: Ints) -> str:
    """Return how messages name an element: the name in backticks, then its position."""
    return f"`{name}`[{', '.join(map(str, position))}]" if position else f"`{name}`"


# Places in row-major order, so that one index reads or writes each element.
#
# The product of the dimensions of an array fits in int64 (numpy makes none otherwise, dimensions
# of 0 left out of the product), so that no place can overflow.


def element_axis(data: Array, indices: Array, axis: int) -> int:
    """Return the axis of elements that indices name, counted from the front.

    Raises:
        KernelError: If the rank or a dimension of `indices` does not fit.
    """
    shapes = f"shapes {indices.shape} and {data.shape}"
    if data.ndim == 0:
        raise KernelError("`data` has rank 0, expected at least 1")
    if indices.ndim != data.ndim:
        raise KernelError(
            f"`indices` has rank {indices.ndim}, expected {data.ndim} as `data`: {shapes}"
        )
    axis = count_axis(axis, data.ndim)
    for dim, (got, limit) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if dim != axis and got > limit and indices.size:
            raise KernelError(
                f"`indices` has size {got} in dimension {dim}, expected at most {limit} as `data`: "
                f"{shapes}, axis {axis}"
            )
    return axis


def element_places(indices: Array, shape: Ints, axis: int) -> Indices:
    """Return the place of each element that an index along one axis names.

    The other coordinates of the element are those of the index itself: `indices` has the rank of
    `shape`, and is no longer than it except along `axis`. The result is flat, in row-major order.

    Raises:
        KernelError: If an index is out of range.
    """
    places = count_indices(indices, shape, axis)
    step = 1
    offsets = np.zeros((1,) * len(shape), np.int64)
    for dim in reversed(range(len(shape))):
        if dim == axis and step != 1:
            places = places * step
        elif dim != axis and indices.shape[dim] > 1:
            along = np.arange(indices.shape[dim], dtype=np.int64) * step
            offsets = offsets + along.reshape(-1, *(1,) * (len(shape) - dim - 1))
        step *= shape[dim]
    if offsets.size > 1:
        places = places + offsets
    return places.reshape(-1)


def slice_places(indices: Array, shape: Ints, *, batch_dims: int = 0) -> Indices:
    """Return the number of the slice that each tuple of indices names.

    Args:
        indices: (B0, ..., I0, ..., k), int64; the tuples index the axes from `batch_dims` on.
        shape: (B0, ..., D0, ...), the shape of `data`, of rank `batch_dims` + k at least.
        batch_dims: Number of leading axes that `indices` and `data` share.

    Returns:
        (B0 * ... * I0 * ...,), in row-major order of `indices`; the slices `data[:, ..., i, ...]`
        over the leading `batch_dims` + k axes are numbered in row-major order.

    Raises:
        KernelError: If an index is out of range.
    """
    outer, depth = indices.shape[:-1], indices.shape[-1]
    batch = np.arange(math.prod(outer[:batch_dims]), dtype=np.int64)
    places: Indices = batch.reshape((*outer[:batch_dims], *(1,) * (len(outer) - batch_dims)))
    for component in range(depth):
        axis = batch_dims + component
        part = count_indices(indices, shape, axis, component=component)
        if component == 0 and batch.size <= 1:
            places = part
        else:
            places = np.asarray(places * shape[axis])
            places = np.add(places, part, out=places if places.shape == part.shape else None)
    return np.broadcast_to(places, outer).reshape(-1)


def position(place: int, shape: Ints) -> Ints:
    """Return the coordinates of a place; none in a shape of rank 0."""
    return tuple(int(n) for n in np.unravel_index(place, shape)) if shape else ()


# Gather, GatherElements and GatherND.

# Gather-1, -11 and -13.


def gather(data: Array, indices: Array, *, axis: int) -> Array:
    """Take slices of `data` along one axis.

    The result has shape `data.shape[:axis] + indices.shape + data.shape[axis + 1:]`. Negative
    indices count from the back. Gather-1 only wants indices "within bounds"; they are taken so
    there too, as in onnxruntime.

    Raises:
        KernelError: If `axis` or an index is out of range.
    """
    axis = count_axis(axis, data.ndim)
    places = count_indices(indices, data.shape, axis).reshape(-1)
    taken = data.take(places, axis=axis)
    return taken.reshape((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


# GatherElements-11 and -13.


def gather_elements(data: Array, indices: Array, *, axis: int) -> Array:
    """Take one element of `data` per index, whose other coordinates are those of the index.

    For a matrix and axis 0: `output[i, j] = data[indices[i, j], j]`.

    The other dimensions of `indices` are at most those of `data`. It may be empty.

    Raises:
        KernelError: If ranks or dimensions do not fit; if `axis` or an index is out of range.
    """
    places = element_places(indices, data.shape, element_axis(data, indices, axis))
    return data.reshape(-1)[places].reshape(indices.shape)


# GatherND-11, -12 and -13.


def gather_nd(data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
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
    return slices.take(places, axis=0).reshape((*indices.shape[:-1], *inner))


LINES: Lines = {
    "Gather": {1: gather},
    "GatherElements": {11: gather_elements},
    "GatherND": {11: gather_nd},
}
"""Operators of this module with their kernels, oldest first."""
