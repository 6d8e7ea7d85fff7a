"""Reductions, ArgMax, ArgMin, TopK, and running sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axes, count_axis, read_integers
from onnx_kvtool.runtime.kernels.conversion.cast import convert
from onnx_kvtool.runtime.kernels.conversion.rounding import INTEGER_RANGES
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, read_scalar, widened
from onnx_kvtool.runtime.kernels.kernel import (
    Array,
    Context,
    Ints,
    KernelFunction,
    Lines,
    Value,
)

# ArgMax and ArgMin.


def positions_of(choose: Callable[..., Any]) -> KernelFunction:
    """Return a kernel of every version of ArgMax or ArgMin, by the function of numpy."""

    def kernel(
        data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Value:
        """Return the positions of the greatest (ArgMax) or least (ArgMin) elements along an axis.

        NaN counts as the greatest, or as the least, as in numpy; the text does not mention it. Of
        equal elements the first is taken, or the last with `select_last_index`.

        Raises:
            KernelError: If `axis` is out of range or of size 0.
        """
        along = count_axis(axis, data.ndim)
        size = data.shape[along]
        if size == 0:
            raise KernelError(f"axis {along} of `data` with shape {data.shape} is empty")
        numbers = widened(data)
        if select_last_index:
            numbers = np.flip(numbers, along)
        found = np.asarray(choose(numbers, axis=along, keepdims=keepdims != 0), np.int64)
        return size - 1 - found if select_last_index else found

    return kernel


Reduction = Callable[[Array, Ints, bool, Context], Array]
"""Reduces (data, axes from the front, keepdims, context); the result has the dtype of the data. No
axes reduce nothing, but steps that are no reduction (squares, logarithms) are still done."""


def _in_widened(compute: Callable[[Array, Ints, bool], Any]) -> Reduction:
    """Return a reduction that computes in the type that narrow floats are widened to."""

    def reduction(data: Array, axes: Ints, keepdims: bool, context: Context) -> Array:
        return narrowed(compute(widened(data), axes, keepdims), data.dtype)

    return reduction


# Reductions to the greatest and the least element.


def extreme(choose: Callable[..., Any], end: int) -> Reduction:
    """Return a reduction by `np.max` (`end` 0) or `np.min` (`end` 1).

    Of nothing it gives the least or the greatest number of the type, an infinity if there is one.
    NaN wins, which the text does not mention; false is less than true.
    """

    @_in_widened
    def reduction(numbers: Array, axes: Ints, keepdims: bool) -> Any:
        dtype = numbers.dtype
        ends = (False, True) if dtype == np.bool_ else INTEGER_RANGES.get(dtype, (-np.inf, np.inf))
        return choose(numbers, axes, keepdims=keepdims, initial=dtype.type(ends[end]))

    return reduction


# The axes of a reduction: an attribute, later an input.


def reduce_1(reduction: Reduction) -> KernelFunction:
    """Return a kernel of every version of a reduction.

    Axes that are absent or empty are all axes, or none where `noop_with_empty_axes` says so.
    Negative axes, which version 1 does not mention, count from the back.
    """

    def kernel(
        data: Array,
        axes: Array | Ints | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
        context: Context,
    ) -> Array:
        given = [] if axes is None else read_integers(axes, "axes")
        if given or noop_with_empty_axes:
            chosen = count_axes(given, data.ndim)
        else:
            chosen = tuple(range(data.ndim))
        return np.asarray(reduction(data, chosen, keepdims != 0, context), data.dtype)

    return kernel


# Reductions that add or multiply.


@_in_widened
def sum_(numbers: Array, axes: Ints, keepdims: bool) -> Any:
    """Add; 0 of nothing. Integers wrap around; narrow floats are added in float32."""
    return _sum(numbers, axes, keepdims)


def mean(data: Array, axes: Ints, keepdims: bool, context: Context) -> Array:
    """Add and divide by the number of elements; integers are truncated towards zero.

    Sums of integers are taken in 64 bits. The mean of nothing, which the text leaves undefined, is
    NaN with a warning.

    Raises:
        KernelError: If integers are averaged over nothing.
    """
    count = math.prod(data.shape[axis] for axis in axes)
    if data.dtype.kind in "iu":
        if count == 0:
            raise KernelError(f"the mean of no integers is undefined: {_along(data, axes)}")
        wide = np.uint64 if data.dtype.kind == "u" else np.int64
        total = _sum(data.astype(wide), axes, keepdims)
        quotient = np.abs(total) // wide(count) if wide is np.int64 else total // wide(count)
        return np.asarray(np.where(total < 0, -quotient, quotient)).astype(data.dtype)
    if count == 0:
        context.warn(f"the mean of nothing is undefined, taken as NaN: {_along(data, axes)}")
    total = _sum(widened(data), axes, keepdims)
    return narrowed(total / np.asarray(count, total.dtype), data.dtype)


@_in_widened
def prod(numbers: Array, axes: Ints, keepdims: bool) -> Any:
    """Multiply; 1 of nothing. Integers wrap around; narrow floats are multiplied in float32."""
    return np.prod(numbers, axes, numbers.dtype, keepdims=keepdims)


@_in_widened
def l1(numbers: Array, axes: Ints, keepdims: bool) -> Any:
    """Add absolute values; 0 of nothing. As `sum_` otherwise."""
    return _sum(np.abs(numbers), axes, keepdims)


@_in_widened
def sum_square(numbers: Array, axes: Ints, keepdims: bool) -> Any:
    """Add squares; 0 of nothing. As `sum_` otherwise."""
    return _sum(np.square(numbers), axes, keepdims)


def l2(data: Array, axes: Ints, keepdims: bool, context: Context) -> Array:
    """Take the root of the sum of squares; 0 of nothing.

    Narrow floats and float32 are computed in float64, where the squares cannot overflow; so are
    integers, whose roots are truncated.
    """
    squares = np.square(data.astype(np.float64))
    return convert(np.sqrt(_sum(squares, axes, keepdims)), data.dtype, warn=context.warn)


def log_sum(data: Array, axes: Ints, keepdims: bool, context: Context) -> Array:
    """Take the logarithm of the sum; -infinity of nothing, where the type has it.

    Narrow floats are computed in float32, integers in float64 and truncated.
    """
    wide = data.astype(np.float64) if data.dtype.kind in "iu" else widened(data)
    return convert(np.asarray(np.log(_sum(wide, axes, keepdims))), data.dtype, warn=context.warn)


def log_sum_exp(data: Array, axes: Ints, keepdims: bool, context: Context) -> Array:
    """Take the logarithm of the sum of exponentials; -infinity of nothing, where the type has it.

    The greatest element is taken out before the exponential, which cannot overflow then. Narrow
    floats are computed in float32, integers in float64 and truncated.
    """
    wide = data.astype(np.float64) if data.dtype.kind in "iu" else widened(data)
    greatest = np.max(wide, axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(greatest), greatest, 0).astype(wide.dtype)
    logarithm = np.log(_sum(np.exp(wide - shift), axes, True)) + shift
    result = logarithm if keepdims else np.squeeze(logarithm, axes)
    return convert(np.asarray(result), data.dtype, warn=context.warn)


def _sum(numbers: Array, axes: Ints, keepdims: bool) -> Array:
    return np.asarray(np.sum(numbers, axes, numbers.dtype, keepdims=keepdims))


def _along(data: Array, axes: Ints) -> str:
    return f"`data` has shape {data.shape}, reduced along {axes}"


# TopK.


def top_k_1(X: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Compute TopK-1: as `top_k_10` for the largest, with `k` as an attribute."""
    return _select(X, k, "k", axis, largest=True)


def top_k_10(
    X: Array, K: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """Compute TopK from version 10 on: the largest or smallest elements and their positions.

    Of equal elements the one with the lower index comes first. NaN counts as the largest, which the
    text does not mention. Without `sorted` the order is undefined; it is the same here.

    A `K` of 0 gives empty results, although the text asks for a positive one.

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
    numbers = widened(X)
    if largest:
        # Sorting the reversed axis and reading from its end puts lower indices first among equals.
        order = np.argsort(np.flip(numbers, along), axis=along, kind="stable")
        order = size - 1 - np.flip(order, along)
    else:
        order = np.argsort(numbers, axis=along, kind="stable")
    positions = np.take(order, range(k), axis=along).astype(np.int64)
    return np.take_along_axis(X, positions, along), positions


# CumSum and CumProd.


def running(step: np.ufunc, start: int) -> KernelFunction:
    """Return a kernel of every version of CumSum or CumProd: `step` and what it starts with."""

    def kernel(
        x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0, context: Context
    ) -> Array:
        """Return running sums (CumSum) or products (CumProd) along an axis.

        Integers wrap around; narrow floats are computed in float32 and each result is rounded. With
        `exclusive`, a result has only the elements before its place; the first one is 0 for sums
        and 1 for products.

        Raises:
            KernelError: If `axis` is no scalar or out of range.
        """
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

    return kernel


LINES: Lines = {
    "CumSum": {11: running(np.add, 0)},
    "CumProd": {26: running(np.multiply, 1)},
    "ReduceSum": {1: reduce_1(sum_)},
    "ReduceMean": {1: reduce_1(mean)},
    "ReduceMax": {1: reduce_1(extreme(np.max, 0))},
    "ReduceMin": {1: reduce_1(extreme(np.min, 1))},
    "ReduceProd": {1: reduce_1(prod)},
    "ReduceL1": {1: reduce_1(l1)},
    "ReduceL2": {1: reduce_1(l2)},
    "ReduceSumSquare": {1: reduce_1(sum_square)},
    "ReduceLogSum": {1: reduce_1(log_sum)},
    "ReduceLogSumExp": {1: reduce_1(log_sum_exp)},
    "ArgMax": {1: positions_of(np.argmax)},
    "ArgMin": {1: positions_of(np.argmin)},
    "TopK": {1: top_k_1, 10: top_k_10},
}
"""Operators of this module with their kernels, oldest first."""
