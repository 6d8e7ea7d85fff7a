"""Reshape-5 and later, and Flatten."""

from __future__ import annotations

import math

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import read_integers
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_axes

__all__ = ["flatten_1", "flatten_11", "reshape_5", "reshape_14"]


def reshape_5(data: Array, shape: Array) -> tuple[Array]:
    """Give `data` another shape; versions before there was `allowzero`. See `reshape_14`."""
    return reshape_14(data, shape, allowzero=0)


def reshape_14(data: Array, shape: Array, *, allowzero: int) -> tuple[Array]:
    """Give `data` another shape with the same number of elements.

    Args:
        data: Any shape and dtype.
        shape: (N,), int64. -1, at most once, is what the other sizes leave; 0 is the size of `data`
            in the same dimension or, if `allowzero`, a size of 0. Empty for a scalar.
        allowzero: 0 or 1; with 1, `shape` may not hold both 0 and -1.

    Returns:
        One array, a view of `data` where its layout permits.

    Raises:
        KernelError: If `shape` is of another dtype or rank, holds numbers below -1, more than one
            -1, a 0 where `data` has no dimension, or 0 and -1 with `allowzero`; if the numbers of
            elements differ, or the sizes beside -1 do not divide that of `data` or are 0.
    """
    given = read_integers(shape, "shape")
    if allowzero not in (0, 1):
        raise KernelError(f"`allowzero` is {allowzero}, expected 0 or 1")
    if allowzero and 0 in given and -1 in given:
        raise KernelError(f"`shape` {given} holds both 0 and -1, which `allowzero` forbids")
    if given.count(-1) > 1:
        raise KernelError(f"`shape` {given} holds -1 more than once")
    sizes = [_size(data, given, dim, bool(allowzero)) for dim in range(len(given))]
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        if known == 0 or data.size % known:
            raise KernelError(
                f"`shape` {given} leaves no size for -1: `data` with shape {data.shape} has "
                f"{counted(data.size, 'element')}, the other sizes make {known}"
            )
        sizes[sizes.index(-1)] = data.size // known
    if math.prod(sizes) != data.size:
        raise KernelError(
            f"`shape` {given} makes {counted(math.prod(sizes), 'element')}, expected {data.size} "
            f"as `data` with shape {data.shape}"
        )
    require_axes(len(sizes))
    return (data.reshape(sizes),)


def _size(data: Array, given: list[int], dim: int, allowzero: bool) -> int:
    """Return the size in one dimension, -1 if it is to be found."""
    size = given[dim]
    if size < -1:
        raise KernelError(f"`shape`[{dim}] is {size}, expected -1 or more")
    if size == 0 and not allowzero:
        if dim >= data.ndim:
            raise KernelError(
                f"`shape`[{dim}] is 0, the size of `data` in dimension {dim}, but `data` has shape "
                f"{data.shape}"
            )
        return int(data.shape[dim])
    return size


def flatten_1(input: Array, *, axis: int) -> tuple[Array]:
    """Make a matrix of `input`; versions whose `axis` is not negative. See `flatten_11`."""
    if axis < 0:
        raise KernelError(f"`axis` is {axis}, expected 0 or more before version 11")
    return flatten_11(input, axis=axis)


def flatten_11(input: Array, *, axis: int) -> tuple[Array]:
    """Make a matrix of `input`: the axes before `axis` are its rows, the others its columns.

    Args:
        input: Rank r, 0 included, any dtype.
        axis: -r to r; 0 makes one row, r one column.

    Returns:
        One array of rank 2, a view of `input` where its layout permits.

    Raises:
        KernelError: If `axis` is out of range.
    """
    rank = input.ndim
    if not -rank <= axis <= rank:
        raise KernelError(f"`axis` is {axis}, expected {-rank} to {rank}: `input` has rank {rank}")
    axis = axis + rank if axis < 0 else axis
    rows, columns = math.prod(input.shape[:axis]), math.prod(input.shape[axis:])
    return (input.reshape(rows, columns),)
