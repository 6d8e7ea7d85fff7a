"""ArgMax and ArgMin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["arg_max_1", "arg_min_1"]


def arg_max_1(
    data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> tuple[Array]:
    """Compute ArgMax of every version: positions of the greatest elements along an axis.

    NaN counts as the greatest, as in numpy; the text does not mention it.

    Args:
        data: Rank 1 or more.
        axis: From the back if negative.
        keepdims: Whether the axis stays, of size 1.
        select_last_index: Whether the last of equal elements is taken, not the first.

    Returns:
        int64.

    Raises:
        KernelError: If `axis` is out of range or of size 0.
    """
    return (_positions(np.argmax, data, axis, keepdims, select_last_index),)


def arg_min_1(
    data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> tuple[Array]:
    """Compute ArgMin of every version: as `arg_max_1`, with the least elements; NaN is least."""
    return (_positions(np.argmin, data, axis, keepdims, select_last_index),)


def _positions(
    choose: Callable[..., Any], data: Array, axis: int, keepdims: int, select_last_index: int
) -> Array:
    along = count_axis(axis, data.ndim)
    size = data.shape[along]
    if size == 0:
        raise KernelError(f"axis {along} of `data` with shape {data.shape} is empty")
    numbers: npt.NDArray[Any] = widened(data)
    if select_last_index:
        numbers = np.flip(numbers, along)
    found = np.asarray(choose(numbers, axis=along, keepdims=keepdims != 0), np.int64)
    return np.asarray(size - 1 - found) if select_last_index else found
