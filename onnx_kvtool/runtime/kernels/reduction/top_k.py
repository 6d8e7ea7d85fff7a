"""TopK."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis, read_integers
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["top_k_1", "top_k_10"]


def top_k_1(X: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Compute TopK-1: as `top_k_10` for the largest, with `k` as an attribute."""
    return _select(X, k, "k", axis, largest=True)


def top_k_10(
    X: Array, K: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """Compute TopK from version 10 on: the largest or smallest elements and their positions.

    Of equal elements the one with the lower index comes first. NaN counts as the largest, which the
    text does not mention. Without `sorted` the order is undefined; it is the same here.

    Args:
        X: Rank 1 or more.
        K: (1,), int64: how many; 0 gives empty results, although the text asks for a positive one.
        axis: From the back if negative.
        largest: Whether the largest are taken, in descending order; else the smallest, ascending.
        sorted: Has no effect.

    Returns:
        Values, and positions along `axis` as int64, of size k along `axis`.

    Raises:
        KernelError: If `axis` is out of range, `K` is not one element, or it is negative or larger
            than the axis.
    """
    counts = read_integers(K, "K")
    if len(counts) != 1:
        raise KernelError(f"`K` has shape {K.shape}, expected (1,)")
    return _select(X, counts[0], "K", axis, largest=largest != 0)


def _select(X: Array, k: int, name: str, axis: int, *, largest: bool) -> tuple[Array, Array]:
    along = count_axis(axis, X.ndim, of="X")
    size = X.shape[along]
    if not 0 <= k <= size:
        raise KernelError(
            f"`{name}` is {k}, expected 0 to {size}: axis {along} of `X` with shape {X.shape}"
        )
    numbers: npt.NDArray[Any] = widened(X)
    if largest:
        # Sorting the reversed axis and reading from its end puts lower indices first among equals.
        order = np.argsort(np.flip(numbers, along), axis=along, kind="stable")
        order = size - 1 - np.flip(order, along)
    else:
        order = np.argsort(numbers, axis=along, kind="stable")
    positions = np.take(order, range(k), axis=along).astype(np.int64)
    return np.take_along_axis(X, positions, along), positions
