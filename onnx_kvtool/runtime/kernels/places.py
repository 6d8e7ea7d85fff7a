"""Where indices point to: places in row-major order, so that one index reads or writes each.

The product of the dimensions of an array fits in int64 (numpy makes none otherwise, dimensions of 0
left out of the product), so that no place can overflow.
"""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.kernels.indices import Indices, count_indices
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["element_places", "position", "slice_places"]


def element_places(indices: Array, shape: tuple[int, ...], axis: int) -> Indices:
    """Return the place of each element that an index along one axis names.

    The other coordinates of the element are those of the index itself.

    Args:
        indices: (I0, ..., In), int32 or int64; In at most Dn but on `axis`.
        shape: (D0, ..., Dn), the shape of `data`.
        axis: The axis that is indexed, counted from the front.

    Returns:
        (I0 * ... * In,), in row-major order of `indices`.

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


def slice_places(indices: Array, shape: tuple[int, ...], *, batch_dims: int = 0) -> Indices:
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


def position(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the coordinates of a place; none in a shape of rank 0."""
    return tuple(int(n) for n in np.unravel_index(place, shape)) if shape else ()
