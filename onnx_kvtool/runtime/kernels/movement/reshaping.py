"""Operators that give values another shape or order."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axes, read_integers, require_axes, require_room
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines, Value

# Reshape-5 and later, and Flatten.


def reshape_5(data: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """Give `data` another shape with the same number of elements; `allowzero` came with 14.

    A -1 in `shape`, at most one, is what the other sizes leave. A 0 is the size of `data` in the
    same dimension or, if `allowzero`, a size of 0. The result is a view of `data` if possible.

    Raises:
        KernelError: If `shape` is of another rank, holds numbers below -1, more than one -1, a 0
            where `data` has no dimension, or 0 and -1 with `allowzero`; if the numbers of elements
            differ, or the sizes beside -1 do not divide that of `data` or are 0.
    """
    given = read_integers(shape, "shape")
    if allowzero not in (0, 1):
        raise KernelError(f"`allowzero` is {allowzero}, expected 0 or 1")
    if allowzero and 0 in given and -1 in given:
        raise KernelError(f"`shape` {given} contains both 0 and -1, which `allowzero` forbids")
    if given.count(-1) > 1:
        raise KernelError(f"`shape` {given} contains -1 more than once")
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
    return data.reshape(sizes)


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


def flatten_1(input: Array, *, axis: int) -> Array:
    """Make a matrix of `input`; versions whose `axis` is not negative. See `flatten_11`."""
    if axis < 0:
        raise KernelError(f"`axis` is {axis}, expected 0 or more before version 11")
    return flatten_11(input, axis=axis)


def flatten_11(input: Array, *, axis: int) -> Array:
    """Make a matrix of `input`: the axes before `axis` are its rows, the others its columns.

    `axis` is -r to r for rank r; 0 makes one row, r one column.

    Raises:
        KernelError: If `axis` is out of range.
    """
    rank = input.ndim
    if not -rank <= axis <= rank:
        raise KernelError(f"`axis` is {axis}, expected {-rank} to {rank}: `input` has rank {rank}")
    axis = axis + rank if axis < 0 else axis
    rows, columns = math.prod(input.shape[:axis]), math.prod(input.shape[axis:])
    return input.reshape(rows, columns)


# Squeeze and Unsqueeze, all versions.


def squeeze_1(data: Array, axes: Array | Ints | None = None) -> Array:
    """Drop dimensions of size 1.

    Without `axes`, all dimensions of size 1 are dropped. An input that is there but empty names
    none, as in onnx.reference; onnxruntime takes it for absent. A scalar is one axis, as in cases
    of the onnx wheel. Negative axes, which version 1 does not mention, count from the back, as in
    onnxruntime 1.32.

    Raises:
        KernelError: If `axes` is of another rank; if one is out of range, named twice, or of
            another size than 1.
    """
    if axes is None:
        dropped = tuple(dim for dim, size in enumerate(data.shape) if size == 1)
    else:
        dropped = count_axes(read_integers(axes, "axes", or_scalar=True), data.ndim)
    for axis in dropped:
        if data.shape[axis] != 1:
            raise KernelError(
                f"axis {axis} of `data` has size {data.shape[axis]}, expected 1 as `axes` names "
                f"it: shape {data.shape}"
            )
    return data.squeeze(dropped)


def unsqueeze_1(data: Array, axes: Array | Ints) -> Array:
    """Insert dimensions of size 1.

    `axes` are axes of the result, in any order. A scalar is one axis, as in cases of the onnx
    wheel. For negative ones see `squeeze_1`.

    Raises:
        KernelError: If `axes` is of another rank; if one is out of range or named twice.
    """
    given = read_integers(axes, "axes", or_scalar=True)
    rank = data.ndim + len(given)
    require_axes(rank)
    inserted = count_axes(given, rank, of="expanded")
    sizes = iter(data.shape)
    return data.reshape([1 if axis in inserted else next(sizes) for axis in range(rank)])


# Expand-8 and -13, and Tile-6 and -13.


def expand(input: Array, shape: Array) -> Array:
    """Repeat `input` along dimensions of size 1, in both directions.

    `shape` is aligned with that of `input` at the last dimension. A size of 1 leaves the dimension
    of `input` unchanged. The result is a read-only view of `input`.

    Raises:
        KernelError: If `shape` is of another rank, or holds negative numbers; if two aligned sizes
            differ and neither is 1.
    """
    sizes = read_integers(shape, "shape")
    if any(size < 0 for size in sizes):
        raise KernelError(f"`shape` {sizes} contains a negative size")
    try:
        require_axes(len(sizes))
        result = np.broadcast_shapes(input.shape, tuple(sizes))
    except ValueError as error:
        raise KernelError(
            f"`input` with shape {input.shape} cannot be expanded to `shape` {sizes}"
        ) from error
    require_room(result, input.dtype)
    return np.broadcast_to(input, result)


def tile(input: Array, repeats: Array) -> Value:
    """Repeat `input` as a whole along each dimension, 0 times or more.

    Raises:
        KernelError: If `repeats` is of another rank or length, or holds negative numbers.
    """
    times = read_integers(repeats, "repeats")
    if len(times) != input.ndim:
        raise KernelError(
            f"`repeats` has {counted(len(times), 'element')}, expected {input.ndim}: `input` has "
            f"shape {input.shape}"
        )
    if any(number < 0 for number in times):
        raise KernelError(f"`repeats` {times} contains a negative number")
    sizes = [size * number for size, number in zip(input.shape, times, strict=True)]
    require_room(sizes, input.dtype)
    return np.tile(input, times)


# Transpose-1 and later.


def transpose(data: Array, *, perm: Ints | None) -> Array:
    """Permute the axes of `data`, or reverse them without `perm`.

    The text knows no negative axes here.

    Raises:
        KernelError: If `perm` is not a permutation of the axes of `data`.
    """
    if perm is None:
        return data.transpose()
    if sorted(perm) != list(range(data.ndim)):
        raise KernelError(
            f"`perm` is {list(perm)}, expected a permutation of 0 to {data.ndim - 1}: `data` has "
            f"shape {data.shape}"
            if data.ndim
            else f"`perm` is {list(perm)}, expected no axes: `data` has rank 0"
        )
    return data.transpose(perm)


# Shape and Size, all versions.


def shape_1(data: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Return the shape of `data`, or some of it since version 15.

    A `start` or `end` below 0 counts from the back. Both are then clamped to 0 to the rank.
    """
    # Python's slices clamp as the text does.
    return np.array(data.shape[start:end], np.int64)


def size(data: Array) -> Array:
    """Return the number of elements of `data`: rank 0, int64; 1 for a scalar."""
    return np.array(data.size, np.int64)


# Identity, all versions.


def identity(input: Value) -> Value:
    """Return `input` itself: an array, a sequence, or an optional that may hold nothing."""
    return input


LINES: Lines = {
    "Expand": {8: expand},
    "Flatten": {1: flatten_1, 11: flatten_11},
    "Identity": {1: identity},
    "Reshape": {5: reshape_5},
    "Shape": {1: shape_1},
    "Size": {1: size},
    "Squeeze": {1: squeeze_1},
    "Tile": {6: tile},
    "Transpose": {1: transpose},
    "Unsqueeze": {1: unsqueeze_1},
}
"""Operators of this module with their kernels, oldest first."""
