"""Operators of two or more operands, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import KEPT_SHAPES, require_room
from onnx_kvtool.runtime.kernels.conversion.cast import convert
from onnx_kvtool.runtime.kernels.conversion.rounding import OVERFLOW, widen_half
from onnx_kvtool.runtime.kernels.kernel import (
    Array,
    Context,
    Dtype,
    Ints,
    KernelFunction,
    Lines,
    Value,
)

# Multidirectional broadcasting, with a message that names the axis that does not fit.
#
# Not that of `symbolic.broadcasting`: inference is tested against the kernels.


@functools.lru_cache(KEPT_SHAPES)
def broadcast_shape(shapes: tuple[Ints, ...], names: tuple[str, ...]) -> Ints:
    """Return the shape that all shapes broadcast to, aligned at their last axes.

    Raises:
        KernelError: If two shapes have different sizes along one axis and neither is 1.
    """
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    owner = [0] * rank
    for number, shape in enumerate(shapes):
        for back, size in enumerate(reversed(shape), start=1):
            if size == 1 or size == result[-back]:
                continue
            if result[-back] != 1:
                other = owner[-back]
                raise KernelError(
                    f"`{names[other]}` with shape {shapes[other]} and `{names[number]}` with shape "
                    f"{shape} do not broadcast: axis {-back} has sizes {result[-back]} and {size}"
                )
            result[-back], owner[-back] = size, number
    return tuple(result)


def check_operands(operands: Sequence[Array], names: tuple[str, ...]) -> None:
    """Check that the shapes of operands broadcast, with room for the result.

    Raises:
        KernelError: If they do not.
    """
    shapes = tuple([operand.shape for operand in operands])
    if shapes.count(shapes[0]) < len(shapes):
        require_room(broadcast_shape(shapes, names), operands[0].dtype)


# Operators on the bits of integers: BitShift; the others are functions of numpy.


def bit_shift_11(X: Array, Y: Array, *, direction: str) -> Array:
    """Compute BitShift from version 11 on: the bits of `X` moved by `Y` places, broadcast.

    Signed types, which version 28 allows, shift right by copying the sign. If the amount is
    negative or not less than the width, no bit is left: the result is 0, or -1 for a negative
    number shifted right. The text of BitShift-28 says so. That of version 11 is silent, and this
    applies the same.

    Raises:
        KernelError: If the shapes do not broadcast, or `direction` is another string.
    """
    check_operands((X, Y), ("X", "Y"))
    if direction not in ("LEFT", "RIGHT"):
        raise KernelError(f"`direction` is `{direction}`, expected `LEFT` or `RIGHT`")
    gone = (Y < 0) | (8 * X.dtype.itemsize <= Y)
    within = np.where(gone, 0, Y).astype(X.dtype)
    if direction == "LEFT":
        moved, empty = np.left_shift(X, within), np.zeros_like(X)
    else:
        moved, empty = np.right_shift(X, within), np.where(X < 0, -1, 0)
    return np.asarray(np.where(gone, empty.astype(X.dtype), moved), X.dtype)


# The type to compute in where rounding after every step would lose too much.


_HALF = np.dtype(np.float16)


def is_narrow(dtype: Dtype) -> bool:
    """Return whether a dtype is a float below 32 bits: float16, bfloat16, float 8 and narrower."""
    return dtype in OVERFLOW


def widened(x: Array) -> Array:
    """Return narrow floats in float32, which holds them all; other arrays as they are."""
    if x.dtype == _HALF:
        return widen_half(x.astype(np.float16, copy=False))
    return x.astype(np.float32) if is_narrow(x.dtype) else x


def narrowed(x: Array, dtype: Dtype) -> Array:
    """Return results in the dtype of the operands, rounded from float32 if that is narrow."""
    return np.asarray(x).astype(dtype, copy=False)


# Operators of two operands of one dtype that numpy computes as ONNX wants them.


Compute = Callable[[Array, Array], Any]


def over_a_b(compute: Compute) -> KernelFunction:
    """Return a kernel over `A` and `B` that broadcasts them and applies a function of numpy.

    Integers wrap around, as in numpy. Narrow floats are computed in float32 and rounded; for sums,
    differences and products that is the same as rounding the exact result once. Overflow, division
    by zero and invalid operations give infinity and NaN.

    The result of `compute` has the dtype that the schema wants. The kernel raises KernelError if
    the shapes do not broadcast.
    """

    def kernel(A: Array, B: Array) -> Array:
        check_operands((A, B), ("A", "B"))
        result = np.asarray(compute(widened(A), widened(B)))
        return result if result.dtype == np.bool_ else narrowed(result, A.dtype)

    return kernel


# Div and Mod.


def div_7(A: Array, B: Array) -> Value:
    """Compute Div from version 7 on: `A` / `B`, broadcast.

    Integers are truncated towards zero, as the text of Div-14 says since onnx 1.18; the least
    integer divided by -1 wraps around to itself. Floats follow IEEE 754 and round once.

    Raises:
        KernelError: If the shapes do not broadcast, or an integer is divided by zero, which the
            text leaves undefined.
    """
    check_operands((A, B), ("A", "B"))
    if not _is_whole(A):
        return A / B
    _check_divisor(B)
    floor = A // B
    if A.dtype.kind == "u":
        return floor
    inexact = (floor * B != A) & ((A < 0) != (B < 0))
    return np.asarray(floor + inexact.astype(A.dtype), A.dtype)


def mod_10(A: Array, B: Array, *, fmod: int = 0) -> Array:
    """Compute Mod of versions 10 and 13: as `mod_28`, but floats need `fmod` 1.

    Raises:
        KernelError: As `mod_28`, or if floats come with `fmod` 0, which these versions forbid.
    """
    if fmod == 0 and not _is_whole(A):
        raise KernelError(
            f"`fmod` is 0, expected 1 for operands of dtype {A.dtype}",
            help="set `fmod` to 1, or use version 28 of Mod",
        )
    return mod_28(A, B, fmod=fmod)


def mod_28(A: Array, B: Array, *, fmod: int = 0) -> Array:
    """Compute Mod-28: the remainder of `A` / `B`, broadcast.

    With `fmod` 0 the quotient is floored and the result has the sign of the divisor, zeros too;
    with `fmod` 1 it is truncated and the result has the sign of the dividend, zeros too. Narrow
    floats are computed in float32, where their remainders are exact.

    Raises:
        KernelError: If the shapes do not broadcast, `fmod` is neither 0 nor 1, or an integer is
            divided by zero.
    """
    check_operands((A, B), ("A", "B"))
    if fmod not in (0, 1):
        raise KernelError(f"`fmod` is {fmod}, expected 0 or 1")
    x, y = widened(A), widened(B)
    if _is_whole(x):
        _check_divisor(y)
    return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y)).astype(A.dtype)


def _is_whole(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _check_divisor(divisor: Array) -> None:
    zeros = divisor == 0
    if zeros.any():
        index = [int(i) for i in np.argwhere(zeros)[0]]
        raise KernelError(f"`B`{index} is 0, and division of integers by zero is undefined")


# Pow.


def pow_7(X: Array, Y: Array, *, context: Context) -> Array:
    """Compute Pow from version 7 on: `X` to the power of `Y`, broadcast, of the dtype of `X`.

    From version 12 on the dtypes may differ. Floats of one dtype are computed in it, narrow ones in
    float32; with exponents of another dtype in float32 if both fit it, else in float64.

    Integer powers of integers are exact and wrap around. With a negative exponent the quotient is
    truncated towards zero: 2 to the -1 is 0. There 0 gives the least integer, as in onnxruntime
    1.31. Integer bases with float exponents are computed in float64 and cast back, truncated.

    Undefined results give a warning: zero to a negative power among integers, and results that an
    integer type cannot represent.

    Raises:
        KernelError: If the shapes do not broadcast.
    """
    broadcast_shape((X.shape, Y.shape), ("X", "Y"))
    if _is_whole(X) and _is_whole(Y):
        return _integer_power(X, Y, context)
    if _is_whole(X):
        power = np.power(X.astype(np.float64), Y.astype(np.float64))
        return convert(np.asarray(power), X.dtype, warn=context.warn)
    if X.dtype == Y.dtype:
        return narrowed(np.power(widened(X), widened(Y)), X.dtype)
    wide = _working_dtype(X.dtype, Y.dtype)
    return convert(np.asarray(np.power(X.astype(wide), Y.astype(wide))), X.dtype)


def _working_dtype(base: Dtype, exponent: Dtype) -> Dtype:
    """Return float32 where both fit it, else float64; an integer exponent of 32 bits does not."""
    small = exponent.itemsize <= 2 or exponent == np.float32
    return np.dtype(np.float32 if small and base.itemsize <= 4 else np.float64)


def _integer_power(base: Array, exponent: Array, context: Context) -> Array:
    base, exponent = np.broadcast_arrays(base, exponent)
    negative = exponent < 0
    left = np.where(negative, 0, exponent).astype(np.uint64)
    square, result = base.copy(), np.ones(base.shape, base.dtype)
    while left.any():
        result = np.where(left & np.uint64(1), result * square, result)
        square = square * square
        left = left >> np.uint64(1)
    if negative.any():
        # 1/x is whole only for x of 1 and -1, and its truncation is 0 otherwise.
        inverse = (base == 1).astype(base.dtype)
        if base.dtype.kind == "i":
            odd = exponent % 2 != 0
            inverse = np.where(base == -1, np.where(odd, -1, 1), inverse).astype(base.dtype)
        zero = negative & (base == 0)
        if zero.any():
            context.warn("`X` is 0 where `Y` is negative, which has no integer result")
            inverse[zero] = np.iinfo(base.dtype).min
        result = np.where(negative, inverse, result)
    return np.asarray(result, base.dtype)


# Inputs that must be scalars.


def read_scalar(value: Array, name: str, context: Context) -> Array:
    """Return an input as an array of rank 0.

    One element in one dimension, which exporters write and onnxruntime 1.31 takes, is accepted
    with a warning.

    Raises:
        KernelError: If `value` has another shape than () or (1,).
    """
    if value.ndim == 0:
        return value
    if value.shape != (1,):
        raise KernelError(f"`{name}` has shape {value.shape}, expected ()")
    context.warn(f"`{name}` has shape (1,), expected (): taken as a scalar")
    return value.reshape(())


# Operators of any number of operands: Min, Max, Sum and Mean.


def min_8(*data_0: Array) -> Value:
    """Compute Min from version 8 on: the least element at each place, broadcast; NaN wins.

    The text does not mention NaN; numpy, onnx.reference and onnxruntime 1.31 agree that it wins.

    Raises:
        KernelError: If shapes do not broadcast.
    """
    _check(data_0)
    return functools.reduce(np.minimum, data_0)


def max_8(*data_0: Array) -> Value:
    """Compute Max from version 8 on: as `min_8`, with the greatest element."""
    _check(data_0)
    return functools.reduce(np.maximum, data_0)


def sum_8(*data_0: Array) -> Array:
    """Compute Sum from version 8 on, broadcast: added from the first on.

    Narrow floats are added in float32 and rounded at the end.

    Raises:
        KernelError: As `min_8`.
    """
    return narrowed(_total(data_0), data_0[0].dtype)


def mean_8(*data_0: Array) -> Array:
    """Compute Mean from version 8 on: the sum as in `sum_8`, divided by the number of operands."""
    total = _total(data_0)
    mean = total / np.asarray(len(data_0), total.dtype)
    return narrowed(mean, data_0[0].dtype)


def _total(operands: tuple[Array, ...]) -> Array:
    _check(operands)
    return np.asarray(functools.reduce(np.add, [widened(x) for x in operands]))


def _check(operands: tuple[Array, ...]) -> None:
    check_operands(operands, tuple([f"data_0[{number}]" for number in range(len(operands))]))


# Versions before 7 broadcast by attributes.
LINES: Lines = {
    "Add": {7: over_a_b(np.add)},
    "Sub": {7: over_a_b(np.subtract)},
    "Mul": {7: over_a_b(np.multiply)},
    "Div": {7: div_7},
    "Mod": {10: mod_10, 28: mod_28},
    "Pow": {7: pow_7},
    "And": {7: over_a_b(np.logical_and)},
    "Or": {7: over_a_b(np.logical_or)},
    "Xor": {7: over_a_b(np.logical_xor)},
    "BitShift": {11: bit_shift_11},
    "BitwiseAnd": {18: over_a_b(np.bitwise_and)},
    "BitwiseOr": {18: over_a_b(np.bitwise_or)},
    "BitwiseXor": {18: over_a_b(np.bitwise_xor)},
    "Equal": {7: over_a_b(np.equal)},
    "Less": {7: over_a_b(np.less)},
    "LessOrEqual": {12: over_a_b(np.less_equal)},
    "Greater": {7: over_a_b(np.greater)},
    "GreaterOrEqual": {12: over_a_b(np.greater_equal)},
    "Min": {8: min_8},
    "Max": {8: max_8},
    "Sum": {8: sum_8},
    "Mean": {8: mean_8},
}
"""Operators of this module with their kernels, oldest first."""
