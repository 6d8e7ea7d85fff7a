"""Slice-1, -10, -11 and -13."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axes, read_integers
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["slice_1", "slice_10"]

_DTYPES = (np.int32, np.int64)


def slice_1(
    data: Array,
    *,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...] | None,
) -> tuple[Array]:
    """Take every element from a start to an end on some axes; see `slice_10`."""
    return _slice(data, starts, ends, axes, None)


def slice_10(
    data: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> tuple[Array]:
    """Take elements from a start to an end, by a step, on some axes.

    Starts and ends below 0 count from the back; what is then out of range is clamped: for a
    positive step to 0 to s, where s is the size of the axis; for a negative one the start to 0 to
    s - 1, the end to -1 to s - 1. A start before the first element and a negative step thus yield
    the first element, as in onnxruntime; onnx.reference, which follows numpy, yields none.

    Args:
        data: Any shape and dtype.
        starts: (N,), int32 or int64, in elements.
        ends: (N,), exclusive.
        axes: (N,), from the back if negative; None for the first N axes, of which the text says
            that they are all of them, while onnx's shape inference and the runtimes take fewer.
        steps: (N,), not 0; None for 1.

    Returns:
        One array, a view of `data`.

    Raises:
        KernelError: If an input is of another dtype or rank, or of another length than `starts`; if
            there are more starts than axes; if an axis is out of range or named twice; if a step
            is 0.
    """
    return _slice(
        data,
        read_integers(starts, "starts", _DTYPES),
        read_integers(ends, "ends", _DTYPES),
        None if axes is None else read_integers(axes, "axes", _DTYPES),
        None if steps is None else read_integers(steps, "steps", _DTYPES),
    )


def _slice(
    data: Array,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> tuple[Array]:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for name, given in (("ends", ends), ("axes", axes), ("steps", steps)):
        if len(given) != len(starts):
            raise KernelError(
                f"`{name}` has {counted(len(given), 'element')}, expected {len(starts)} as `starts`"
            )
    if len(starts) > data.ndim:
        raise KernelError(
            f"`starts` has {counted(len(starts), 'element')}, expected at most {data.ndim}: `data` "
            f"has shape {data.shape}"
        )
    index: list[Any] = [slice(None)] * data.ndim
    for axis, start, end, step in zip(
        count_axes(axes, data.ndim), starts, ends, steps, strict=True
    ):
        if step == 0:
            raise KernelError(f"`steps` {list(steps)} holds 0")
        index[axis] = _range(start, end, step, data.shape[axis])
    return (data[(*index, ...)],)  # the ellipsis makes it an array for rank 0 too


def _range(start: int, end: int, step: int, size: int) -> slice:
    """Return one axis of the index, after the clamping of the text."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start = min(max(start, 0), size - 1)
    end = min(max(end, -1), size - 1)
    if start <= end or size == 0:
        return slice(0, 0)
    return slice(start, None if end < 0 else end, step)
