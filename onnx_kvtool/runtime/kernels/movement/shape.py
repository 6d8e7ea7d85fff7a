"""Shape and Size, all versions."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["shape_1", "shape_15", "size"]


def shape_1(data: Array) -> tuple[Array]:
    """Return the shape of `data`: (r,), int64, empty for a scalar."""
    return (np.array(data.shape, np.int64),)


def shape_15(data: Array, *, start: int, end: int | None) -> tuple[Array]:
    """Return some of the shape of `data`.

    Args:
        data: Any shape and dtype.
        start: First dimension, from the back if negative; then clamped to 0 to r.
        end: Dimension to stop before, alike; None for r.

    Returns:
        (N,), int64; empty if `start` is not before `end`.
    """
    # Python's slices clamp as the text does.
    return (np.array(data.shape[start:end], np.int64),)


def size(data: Array) -> tuple[Array]:
    """Return the number of elements of `data`: rank 0, int64; 1 for a scalar."""
    return (np.array(data.size, np.int64),)
