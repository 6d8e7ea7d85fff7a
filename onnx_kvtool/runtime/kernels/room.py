"""Whether there is room for a result, asked before it is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_kvtool.core.quantity import binary_bytes
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.memory import available_memory

__all__ = ["MOST_AXES", "require_axes", "require_room"]

MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""Highest rank of an array of the installed numpy."""

_SMALL = 64 << 20
"""Bytes for which nobody has to ask the system."""


def require_room(sizes: Sequence[int], dtype: np.dtype[Any], what: str = "the result") -> None:
    """Check that an array can be made; a view counts, as whatever reads it makes copies.

    Args:
        sizes: Its shape, sizes of 0 or more.
        dtype: Its dtype; strings count with what refers to them.
        what: What it is, for the message.

    Raises:
        KernelError: If it has more axes than numpy's arrays can have, or takes more memory than
            is left.
    """
    require_axes(len(sizes), what)
    needed = math.prod(sizes) * dtype.itemsize
    if needed <= _SMALL:
        return
    left = available_memory()
    if needed >= 2**63 or (left is not None and needed > left):
        known = "" if left is None else f", and {binary_bytes(left)} are left"
        raise KernelError(
            f"{what} with shape {tuple(sizes)} and dtype {dtype} takes "
            f"{binary_bytes(needed)}{known}",
            help="check the sizes that the graph computes, or give smaller ones with `--dim`",
        )


def require_axes(rank: int, what: str = "the result") -> None:
    """Check that numpy has arrays of a rank.

    Raises:
        KernelError: If it has none.
    """
    if rank > MOST_AXES:
        raise KernelError(f"{what} has rank {rank}, and numpy's arrays have {MOST_AXES} at most")
