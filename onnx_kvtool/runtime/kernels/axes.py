"""Axes given by attributes and inputs, and the memory that a result needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array, Dtype, Ints
from onnx_kvtool.runtime.memory import available_memory

# Axes given by attributes and inputs, counted from the front.


def count_axis(axis: int, rank: int, *, name: str = "axis", of: str = "data") -> int:
    """Return an axis counted from the front.

    Raises:
        KernelError: If `axis` lies outside -rank to rank - 1; always if `rank` is 0.
    """
    if not -rank <= axis < rank:
        expected = f"{-rank} to {rank - 1}" if rank else "none"
        raise KernelError(f"`{name}` is {axis}, expected {expected}: `{of}` has rank {rank}")
    return axis % rank


def count_axes(axes: Iterable[int], rank: int, *, name: str = "axes", of: str = "data") -> Ints:
    """Return axes counted from the front, in the order given.

    Raises:
        KernelError: If one lies outside -rank to rank - 1, or two are the same.
    """
    found: list[int] = []
    given = list(axes)
    for position, value in enumerate(given):
        axis = count_axis(value, rank, name=f"{name}[{position}]", of=of)
        if axis in found:
            raise KernelError(
                f"`{name}` {given} names axis {axis} twice, at positions {found.index(axis)} and "
                f"{position}"
            )
        found.append(axis)
    return tuple(found)


def read_integers(value: Array | Ints, name: str, *, or_scalar: bool = False) -> list[int]:
    """Return the sizes, axes or positions that an attribute or an input lists; (0,) lists none.

    Raises:
        KernelError: If `value` is not of rank 1 (or 0, if it may).
    """
    if isinstance(value, tuple):
        return list(value)
    if value.ndim != 1 and not (or_scalar and value.ndim == 0):
        raise KernelError(f"`{name}` has shape {value.shape}, expected one dimension")
    found: list[int] = value.reshape(-1).tolist()
    return found


# The memory for a result, checked before the result is made.


KEPT_SHAPES = 1024
"""Shapes that the cache of a check keeps; they repeat with each layer and step."""


MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""Highest rank of an array of the installed numpy."""

_SMALL = 64 << 20
"""Results of at most so many bytes are made without asking the system."""


def require_room(sizes: Sequence[int], dtype: Dtype, what: str = "the result") -> None:
    """Check that there is memory for an array; also for a view, since its readers make copies.

    A string counts as one pointer.

    Raises:
        KernelError: If it has more axes than numpy supports, or needs more memory than is left.
    """
    needed = math.prod(sizes) * dtype.itemsize
    if needed <= _SMALL and len(sizes) <= MOST_AXES:
        return
    require_axes(len(sizes), what)
    left = available_memory()
    if needed >= 2**63 or (left is not None and needed > left):
        known = "" if left is None else f", and {binary_bytes(left)} are left"
        raise KernelError(
            f"{what} with shape {tuple(sizes)} and dtype {dtype} takes "
            f"{binary_bytes(needed)}{known}",
            help="check the sizes that the graph computes, or give smaller ones with `--dim`",
        )


def require_axes(rank: int, what: str = "the result") -> None:
    """Check that numpy supports arrays of a rank.

    Raises:
        KernelError: If it does not.
    """
    if rank > MOST_AXES:
        raise KernelError(f"{what} has rank {rank}, and numpy's arrays have {MOST_AXES} at most")
