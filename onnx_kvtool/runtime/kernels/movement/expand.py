"""Expand-8 and -13, and Tile-6 and -13."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import read_integers
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_axes, require_room

__all__ = ["expand", "tile"]


def expand(input: Array, shape: Array) -> tuple[Array]:
    """Repeat `input` along dimensions of size 1, in both directions.

    Args:
        input: Any shape and dtype.
        shape: (N,), int64, sizes of 0 or more, aligned at the last dimension with those of `input`.
            A size of 1 leaves the dimension of `input` as it is.

    Returns:
        One array, a read-only view of `input`.

    Raises:
        KernelError: If `shape` is of another dtype or rank, or holds negative numbers; if two
            aligned sizes differ and neither is 1.
    """
    sizes = read_integers(shape, "shape")
    if any(size < 0 for size in sizes):
        raise KernelError(f"`shape` {sizes} holds a negative size")
    try:
        require_axes(len(sizes))
        result = np.broadcast_shapes(input.shape, tuple(sizes))
    except ValueError as error:
        raise KernelError(
            f"`input` with shape {input.shape} cannot be expanded to `shape` {sizes}"
        ) from error
    require_room(result, input.dtype)
    return (np.broadcast_to(input, result),)


def tile(input: Array, repeats: Array) -> tuple[Array]:
    """Repeat `input` as a whole along each dimension.

    Args:
        input: Rank r, any dtype.
        repeats: (r,), int64, 0 or more.

    Returns:
        One array, each dimension as many times as large.

    Raises:
        KernelError: If `repeats` is of another dtype, rank or length, or holds negative numbers.
    """
    times = read_integers(repeats, "repeats")
    if len(times) != input.ndim:
        raise KernelError(
            f"`repeats` has {counted(len(times), 'element')}, expected {input.ndim}: `input` has "
            f"shape {input.shape}"
        )
    if any(number < 0 for number in times):
        raise KernelError(f"`repeats` {times} holds a negative number")
    sizes = [size * number for size, number in zip(input.shape, times, strict=True)]
    require_room(sizes, input.dtype)
    return (np.asarray(np.tile(input, times)),)
