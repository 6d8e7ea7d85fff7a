"""Squeeze and Unsqueeze, all versions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axes, read_integers
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_axes

__all__ = [
    "squeeze_1",
    "squeeze_11",
    "squeeze_13",
    "unsqueeze_1",
    "unsqueeze_11",
    "unsqueeze_13",
]


def squeeze_1(data: Array, *, axes: tuple[int, ...] | None) -> tuple[Array]:
    """Drop dimensions of size 1; the version whose axes are not negative. See `squeeze_13`."""
    _refuse_negative(axes)
    return _squeeze(data, axes)


def squeeze_11(data: Array, *, axes: tuple[int, ...] | None) -> tuple[Array]:
    """Drop dimensions of size 1; see `squeeze_13`."""
    return _squeeze(data, axes)


def squeeze_13(data: Array, axes: Array | None = None) -> tuple[Array]:
    """Drop dimensions of size 1.

    Args:
        data: Any shape and dtype.
        axes: (N,), or a scalar as in cases of the onnx wheel; int64, from the back if negative;
            None for all dimensions of size 1. An input that is there but empty names none, as in
            onnx.reference; onnxruntime takes it for None.

    Returns:
        One array, a view of `data`.

    Raises:
        KernelError: If `axes` is of another dtype or rank; if one is out of range, named twice, or
            of another size than 1.
    """
    return _squeeze(data, None if axes is None else read_integers(axes, "axes", or_scalar=True))


def unsqueeze_1(data: Array, *, axes: tuple[int, ...]) -> tuple[Array]:
    """Insert dimensions of size 1; the version whose axes are not negative. See `unsqueeze_13`."""
    _refuse_negative(axes)
    return _unsqueeze(data, axes)


def unsqueeze_11(data: Array, *, axes: tuple[int, ...]) -> tuple[Array]:
    """Insert dimensions of size 1; see `unsqueeze_13`."""
    return _unsqueeze(data, axes)


def unsqueeze_13(data: Array, axes: Array) -> tuple[Array]:
    """Insert dimensions of size 1.

    Args:
        data: Any shape and dtype.
        axes: (N,), or a scalar as in cases of the onnx wheel; int64, axes of the result, in any
            order, from its back if negative.

    Returns:
        One array, a view of `data`, of rank r + N.

    Raises:
        KernelError: If `axes` is of another dtype or rank; if one is out of range or named twice.
    """
    return _unsqueeze(data, read_integers(axes, "axes", or_scalar=True))


def _refuse_negative(axes: tuple[int, ...] | None) -> None:
    if axes is not None and any(axis < 0 for axis in axes):
        raise KernelError(f"`axes` is {list(axes)}, expected no negative ones before version 11")


def _squeeze(data: Array, axes: Sequence[int] | None) -> tuple[Array]:
    if axes is None:
        dropped = tuple(dim for dim, size in enumerate(data.shape) if size == 1)
    else:
        dropped = count_axes(axes, data.ndim)
    for axis in dropped:
        if data.shape[axis] != 1:
            raise KernelError(
                f"axis {axis} of `data` has size {data.shape[axis]}, expected 1 as `axes` names "
                f"it: shape {data.shape}"
            )
    return (np.squeeze(data, axis=dropped),)


def _unsqueeze(data: Array, axes: Sequence[int]) -> tuple[Array]:
    require_axes(data.ndim + len(axes))
    inserted = count_axes(axes, data.ndim + len(axes), of="expanded")
    return (np.expand_dims(data, inserted),)
