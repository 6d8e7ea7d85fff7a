"""Indices along an axis: checked as a whole, counted from the front, never wrapped in silence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["Indices", "check_index_dtype", "count_indices", "subscript"]

Indices = npt.NDArray[np.int64]


def check_index_dtype(indices: Array, *, only_int64: bool = False) -> None:
    """Check that `indices` is of a dtype that the schema allows.

    Raises:
        KernelError: If it is neither int64 nor, unless `only_int64`, int32.
    """
    if indices.dtype == np.int64 or (indices.dtype == np.int32 and not only_int64):
        return
    expected = "int64" if only_int64 else "int32 or int64"
    raise KernelError(
        f"`indices` is of dtype {indices.dtype}, expected {expected}",
        help="cast `indices` to int64",
    )


def count_indices(
    indices: Array, shape: tuple[int, ...], axis: int, *, component: int | None = None
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
    part: npt.NDArray[np.integer] = indices if component is None else indices[..., component]  # type: ignore[assignment]
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


def subscript(name: str, position: tuple[int, ...]) -> str:
    """Return how messages name an element: the name in backticks, then its position."""
    return f"`{name}`[{', '.join(map(str, position))}]" if position else f"`{name}`"
