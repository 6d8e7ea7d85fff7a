"""CumSum and CumProd."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, read_scalar, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Lines


def cum_sum_11(
    x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0, context: Context
) -> tuple[Array]:
    """Compute CumSum from version 11 on: running sums along an axis.

    Integers wrap around; narrow floats are added in float32 and each sum is rounded. With
    `exclusive`, a sum has only the elements before its place, and starts with 0.

    Raises:
        KernelError: If `axis` is no scalar or out of range.
    """
    return (_running(np.add, 0, x, axis, exclusive, reverse, context),)


def cum_prod_26(
    x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0, context: Context
) -> tuple[Array]:
    """Compute CumProd-26: running products along an axis; see `cum_sum_11`, with 1 for 0."""
    return (_running(np.multiply, 1, x, axis, exclusive, reverse, context),)


def _running(
    step: np.ufunc,
    start: int,
    x: Array,
    axis: Array,
    exclusive: int,
    reverse: int,
    context: Context,
) -> Array:
    along = count_axis(int(read_scalar(axis, "axis", context)), x.ndim, of="x")
    numbers = widened(x)
    if reverse:
        numbers = np.flip(numbers, along)
    total: Any = step.accumulate(numbers, axis=along, dtype=numbers.dtype)
    if exclusive and x.shape[along]:
        first = np.full_like(np.take(total, [0], axis=along), start)
        before = np.take(total, range(x.shape[along] - 1), axis=along)
        total = np.concatenate([first, before], axis=along)
    return narrowed(np.flip(total, along) if reverse else total, x.dtype)


LINES: Lines = {
    "CumSum": {11: cum_sum_11},
    "CumProd": {26: cum_prod_26},
}
"""Operators of this module with their kernels, oldest first."""
