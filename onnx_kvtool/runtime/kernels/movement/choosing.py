"""Operators that make values or choose among them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis, read_integers, require_room
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines, Value

# Constant and ConstantOfShape, all versions.


def constant_1(
    *,
    value: Array | None,
    sparse_value: Array | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: Ints | None = None,
    value_string: str | None = None,
    value_strings: tuple[str, ...] | None = None,
) -> Value:
    """Return the attribute that is given; `sparse_value` came with version 11, the next with 12.

    A number or string becomes an array of rank 0, a list an array of rank 1. Their types are
    float32, int64, or strings as objects. The array is read-only, since the node keeps it for the
    next run.

    Raises:
        KernelError: If none or more than one is given.
    """
    numbers = {
        "value_float": (value_float, np.float32),
        "value_floats": (value_floats, np.float32),
        "value_int": (value_int, np.int64),
        "value_ints": (value_ints, np.int64),
        "value_string": (value_string, object),
        "value_strings": (value_strings, object),
    }
    given: dict[str, Any] = {"value": value, "sparse_value": sparse_value}
    given |= {name: np.array(v, dtype) for name, (v, dtype) in numbers.items() if v is not None}
    found = [name for name, array in given.items() if array is not None]
    if len(found) != 1:
        got = " and ".join(f"`{name}`" for name in found) or "none"
        names = ", ".join(f"`{name}`" for name in ("value", "sparse_value", *numbers))
        raise KernelError(f"{got} of the attributes are given, expected exactly one of {names}")
    view = given[found[0]].view()
    view.flags.writeable = False
    return view


def constant_of_shape(input: Array, *, value: Array | None) -> Array:
    """Return an array of one value.

    `input` is the shape, empty for a scalar. Without `value` the elements are float32 zeros.

    Raises:
        KernelError: If `input` is of another rank, or holds negative numbers; if `value` is not one
            element.
    """
    sizes = read_integers(input, "input")
    if any(size < 0 for size in sizes):
        raise KernelError(f"`input` {sizes} contains a negative size")
    require_room(sizes, np.dtype(np.float32) if value is None else value.dtype)
    if value is None:
        return np.zeros(sizes, np.float32)
    if value.size != 1:
        raise KernelError(f"`value` has shape {value.shape}, expected one element")
    return np.full(sizes, value.reshape(())[()], value.dtype)


# OneHot-9, -11 and -28.


def one_hot(
    indices: Array, depth: Array, values: Array, *, axis: int, is_before_11: bool = False
) -> Value:
    """Mark each index on a new axis.

    Indices and `depth` are cast to int64 if they are no integers. An index outside -`depth` to
    `depth` - 1 marks nothing, nor does a negative one before version 11. `values` is what stands
    everywhere, then what stands at the index. `axis` is an axis of the result.

    Raises:
        KernelError: If `depth` or `values` has another shape; if `depth` is negative; if `axis` is
            out of range.
    """
    if depth.size != 1 or depth.ndim > 1:
        raise KernelError(f"`depth` has shape {depth.shape}, expected one element")
    if values.shape != (2,):
        raise KernelError(f"`values` has shape {values.shape}, expected (2,)")
    size = int(depth.reshape(())[()].astype(np.int64))
    if size < 0:
        raise KernelError(f"`depth` is {size}, expected 0 or more")
    axis = count_axis(axis, indices.ndim + 1, of="output")
    require_room((size, *indices.shape), np.dtype(np.int64))
    if indices.dtype == np.uint64:  # which may hold what int64 cannot
        indices = np.minimum(indices, np.uint64(size))
    places = indices.astype(np.int64)
    if not is_before_11:
        places = np.where(places < 0, places + size, places)
    hot = np.expand_dims(places, axis)
    along = np.arange(size).reshape(-1, *(1,) * (indices.ndim - axis))
    return np.where(hot == along, values[1], values[0]).astype(values.dtype, copy=False)


# Range-11 and -27.


def range_11(start: Array, limit: Array, delta: Array) -> Value:
    """Count from `start` up to `limit` by `delta`.

    `output[i] = start + i * delta` for `ceil((limit - start) / delta)` elements, none if that is
    negative. The elements are computed by the formula in the dtype, as the text has it;
    onnxruntime (1.31.1) adds `delta` again and again, which drifts. The text leaves open how the
    number is rounded: the quotient is taken in double, as in onnxruntime and numpy.

    Raises:
        KernelError: If an input is not one element; if `delta` is 0; if a float is not finite.
    """
    first, last, step = _scalars(start, limit, delta)
    dtype = start.dtype
    if dtype.kind in "iu":
        number = max(-((int(first) - int(last)) // int(step)), 0)
        require_room((number,), np.dtype(np.int64))
        # What overflows in between comes back: every element lies between `start` and `limit`.
        steps = np.arange(number, dtype=np.int64) * np.int64(step)
        return (np.int64(first) + steps).astype(dtype)
    quotient = float(last - first) / float(step)
    if not math.isfinite(quotient):
        raise KernelError("`limit` - `start` overflows")
    number = max(math.ceil(quotient), 0)
    require_room((number,), np.dtype(np.float64))
    return (first + np.arange(number).astype(dtype) * step).astype(dtype)


def range_27(start: Array, limit: Array, delta: Array, *, stash_type: int) -> Array:
    """Count from `start` up to `limit` by `delta`; see `range_11`.

    float16 and bfloat16 are computed in float32 and rounded once at the end.

    Raises:
        KernelError: As `range_11`; if `stash_type` is another number.
    """
    if stash_type != 1:
        raise KernelError(f"`stash_type` is {stash_type}, expected 1")
    return narrowed(range_11(*map(widened, (start, limit, delta))), start.dtype)


def _scalars(*values: Array) -> list[Any]:
    scalars: list[Any] = []
    for name, value in zip(("start", "limit", "delta"), values, strict=True):
        if value.size != 1 or value.ndim > 1:
            raise KernelError(f"`{name}` has shape {value.shape}, expected a scalar")
        scalars.append(value.reshape(())[()])
        if not math.isfinite(float(scalars[-1])):
            raise KernelError(f"`{name}` is {scalars[-1]}, expected a finite number")
    if float(scalars[2]) == 0:
        raise KernelError("`delta` is 0")
    return scalars


# NonZero and Compress, all versions.


def non_zero(X: Array) -> Array:
    """Return the coordinates of the elements that are not zero, in row-major order.

    NaN is not zero, -0 is; a string is not zero if it is not empty, as in numpy.

    The result is (r, N), int64, for rank r; for a scalar (0, N), N of 1 or 0.
    """
    if X.ndim == 0:
        return np.zeros((0, int(bool(X))), np.int64)
    return np.array(np.nonzero(X), np.int64).reshape(X.ndim, -1)


def compress(input: Array, condition: Array, *, axis: int | None) -> Array:
    """Keep the slices whose condition is true; drop those behind the last condition.

    Without `axis`, `input` is made one-dimensional first.

    Raises:
        KernelError: If `input` has rank 0; if `condition` is of another rank, or longer than the
            axis; if `axis` is out of range.
    """
    if input.ndim == 0:
        raise KernelError("`input` has rank 0, expected at least 1")
    if condition.ndim != 1:
        raise KernelError(f"`condition` has shape {condition.shape}, expected rank 1")
    along = None if axis is None else count_axis(axis, input.ndim, of="input")
    size = math.prod(input.shape) if along is None else input.shape[along]
    if len(condition) > size:
        raise KernelError(
            f"`condition` has {counted(len(condition), 'element')}, expected at most {size}: "
            f"`input` has shape {input.shape}"
        )
    return np.take(input, np.flatnonzero(condition), axis=along)


# Unique-11 and -28.


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


# Where-9 and -16.


def where(condition: Array, X: Array, Y: Array) -> Value:
    """Take each element from `X` where `condition` holds, else from `Y`; all are broadcast.

    Raises:
        KernelError: If the shapes do not fit.
    """
    try:
        return np.where(condition, X, Y)
    except ValueError as error:
        raise KernelError(
            f"`condition`, `X` and `Y` with shapes {condition.shape}, {X.shape} and {Y.shape} "
            "cannot be broadcast to one"
        ) from error


LINES: Lines = {
    "Compress": {9: compress},
    "Constant": {1: constant_1},
    "ConstantOfShape": {9: constant_of_shape},
    "NonZero": {9: non_zero},
    "OneHot": {9: functools.partial(one_hot, is_before_11=True), 11: one_hot},
    "Range": {11: range_11, 27: range_27},
    "Unique": {11: unique},
    "Where": {9: where},
}
"""Operators of this module with their kernels, oldest first."""
