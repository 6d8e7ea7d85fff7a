"""Unique-11 and -28."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["unique"]


def unique(
    X: Array,
    *,
    axis: int | None,
    sorted: int,
) -> tuple[Array, Array, Array, Array]:
    """Return the different elements, or slices, of `X`.

    NaN equals NaN and comes last, as in numpy. Slices are ordered element by element.

    Args:
        X: Any shape and dtype that has an order.
        axis: The axis whose slices are compared, counted from the back if negative; None for the
            elements of `X` made one-dimensional.
        sorted: 1 for ascending order, 0 for the order of first occurrence.

    Returns:
        Four arrays: the elements or slices, N along the axis; then int64: (N,) the index of the
        first occurrence of each, (M,) which of them each element or slice of `X` is, (N,) how often
        each occurs.

    Raises:
        KernelError: If `axis` is out of range; if `sorted` is neither 0 nor 1.
    """
    if sorted not in (0, 1):
        raise KernelError(f"`sorted` is {sorted}, expected 0 or 1")
    along = 0 if axis is None else count_axis(axis, X.ndim, of="X")
    source = X.reshape(-1) if axis is None else X
    # Ranks of the elements stand for them: numpy compares slices of integers only.
    _, ranks = np.unique(X.reshape(-1), return_inverse=True)
    slices = np.moveaxis(ranks.reshape(source.shape), along, 0)
    count = len(slices)
    width = slices.size // count if count else 0
    _, first, inverse, counts = np.unique(
        slices.reshape(count, width),
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], place[inverse]
    found = np.take(source, first, axis=along)
    return (
        found,
        first.astype(np.int64),
        inverse.astype(np.int64),
        counts.astype(np.int64),
    )
