"""Integers of every width, their limits among them."""

from __future__ import annotations

import numpy as np

__all__ = ["SIGNED", "UNSIGNED", "numbers"]

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]


def numbers(dtype: type) -> np.ndarray:
    """Return the limits of a type and numbers between them."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(13)
    drawn = rng.integers(limits.min, limits.max, 20, dtype=dtype, endpoint=True)
    edges = [limits.min, limits.min + 1, limits.max, 0, 1, limits.max // 3]
    return np.concatenate([np.array(edges, dtype), drawn])
