"""Which rows of a cache a step has left as they were."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.comparison.compare import Mask, bits_differ
from onnx_kvtool.runtime.sessions import Array

__all__ = ["kept_rows", "moved_rows"]


def kept_rows(past: Array, present: Array, axis: int | None) -> bool | Mask:
    """Return which elements of `present` belong to rows that are those of `past`, bit for bit.

    Args:
        past: A cache.
        present: The same cache later; it may have grown.
        axis: The sequence axis; a row is everything at one batch index and one index of it. None
            takes what lies along the last axis for a row.

    Returns:
        An array of the shape of `present`; False if the two do not fit each other.
    """
    if past.dtype != present.dtype or past.ndim != present.ndim or past.ndim == 0:
        return False
    if any(old > new for old, new in zip(past.shape, present.shape, strict=True)):
        return False
    region = tuple(slice(size) for size in past.shape)
    changed = bits_differ(past, present[region])
    outside = {past.ndim - 1} if axis is None else set(range(past.ndim)) - {0, axis}
    kept = np.zeros(present.shape, np.bool_)
    kept[region] = ~changed.any(axis=tuple(sorted(outside)), keepdims=True)
    if axis is not None and past.shape == present.shape and not kept.any():
        moved = moved_rows(past, present, axis)
        kept[(slice(None),) * axis + (slice(moved),)] = True
    return kept


def moved_rows(past: Array, present: Array, axis: int) -> int:
    """Return how many of the last rows of `past` are those of `present` from the first on.

    A cache that rolls drops its first rows for new ones. The first of several numbers is taken that
    fit; 0 if none does.
    """
    old, new = np.moveaxis(past, axis, 0), np.moveaxis(present, axis, 0)
    for start in range(1, len(old)):
        count = min(len(old) - start, len(new))
        # Most numbers are told from one row.
        if not bits_differ(old[start], new[0]).any() and not _differ(old[start:], new, count):
            return count
    return 0


def _differ(old: Array, new: Array, count: int) -> bool:
    return bool(bits_differ(old[:count], new[:count]).any())
