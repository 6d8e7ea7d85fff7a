"""OneHot-9, -11 and -28."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_room

__all__ = ["one_hot_9", "one_hot_11"]


def one_hot_9(indices: Array, depth: Array, values: Array, *, axis: int) -> tuple[Array]:
    """Mark each index on a new axis; the version where a negative index marks nothing.

    See `one_hot_11`.
    """
    return _one_hot(indices, depth, values, axis, from_back=False)


def one_hot_11(indices: Array, depth: Array, values: Array, *, axis: int) -> tuple[Array]:
    """Mark each index on a new axis.

    Args:
        indices: (D0, ..., Dn), any numbers, cast to int64 if no integers; -`depth` to `depth` - 1,
            others mark nothing.
        depth: One element, rank 0 or 1, any number, cast to int64: the size of the new axis, 0 or
            more.
        values: (2,), any dtype: what stands everywhere, and what stands at the index.
        axis: The new axis, in the result; from its back if negative.

    Returns:
        One array of rank n + 2, of the dtype of `values`.

    Raises:
        KernelError: If `depth` or `values` has another shape; if `depth` is negative; if `axis` is
            out of range.
    """
    return _one_hot(indices, depth, values, axis, from_back=True)


def _one_hot(
    indices: Array, depth: Array, values: Array, axis: int, *, from_back: bool
) -> tuple[Array]:
    if depth.size != 1 or depth.ndim > 1:
        raise KernelError(f"`depth` has shape {depth.shape}, expected one element")
    if values.shape != (2,):
        raise KernelError(f"`values` has shape {values.shape}, expected (2,)")
    size = int(depth.reshape(())[()].astype(np.int64))
    if size < 0:
        raise KernelError(f"`depth` is {size}, expected 0 or more")
    axis = count_axis(axis, indices.ndim + 1, of="output")
    require_room((size, *indices.shape), np.dtype(np.int64))
    hot = np.expand_dims(_places(indices, size, from_back), axis)
    along = np.arange(size).reshape(-1, *(1,) * (indices.ndim - axis))
    return (np.where(hot == along, values[1], values[0]).astype(values.dtype, copy=False),)


def _places(indices: Array, size: int, from_back: bool) -> npt.NDArray[np.int64]:
    """Return where each index points to, `size` where it points nowhere."""
    if indices.dtype.kind == "u":  # uint64 may hold what int64 cannot
        return np.minimum(indices, np.uint64(size)).astype(np.int64)
    with np.errstate(invalid="ignore"):
        places: npt.NDArray[np.int64] = indices.astype(np.int64)
    if from_back:
        inside = (places >= -size) & (places < size)
        places = np.where(places < 0, places + size, places)
    else:
        inside = (places >= 0) & (places < size)
    return np.where(inside, places, size)
