"""BatchNormalization, the older normalizations, and Softmax and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axes, count_axis
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Ints, KernelFunction, Lines, Value
from onnx_kvtool.runtime.kernels.normalization.layer import (
    Reals,
    check_rank,
    check_shape,
    mean_over,
)

# BatchNormalization: with given statistics, or since version 14 those of the batch.


_NO_TRAINING = "run the model in inference mode: remove the outputs behind the first"


def batch_normalization_7(
    X: Array,
    scale: Array,
    B: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
    spatial: int = 1,
    context: Context | None = None,
) -> Array:
    """Compute BatchNormalization-7 and -9 as version 14, with given statistics.

    Unless `spatial`, which version 9 does not have, the operands are (C, D1, ..., Dn).

    Raises:
        KernelError: If the node trains, or a shape is another.
    """
    if context is not None and context.outputs > 1:
        raise KernelError(
            f"the node has {counted(context.outputs, 'output')}, which means training, expected 1",
            help=_NO_TRAINING,
        )
    shape = (_channels(X),) if spatial else X.shape[1:]
    operands = _checked(X, shape, {"scale": scale, "B": B, "mean": mean, "var": var})
    return _normalized(X, operands, epsilon)


def batch_normalization_14(
    X: Array,
    scale: Array,
    B: Array,
    input_mean: Array,
    input_var: Array,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int,
) -> tuple[Array, ...]:
    """Compute BatchNormalization-14 and -15: (X - mean) / sqrt(var + epsilon) * scale + B.

    Computed in float32, in float64 if an operand is, and rounded once.

    X is (N, C, D1, ..., Dn), or (N,) with C of 1; the other operands are (C,). In training mode,
    the mean and population variance of the batch are used, and `momentum` is the weight of the
    input statistics in the running ones.

    Returns:
        Y, of the shape and type of `X`; in training mode also running_mean and running_var, (C,),
        of the types of the input statistics.

    Raises:
        KernelError: If a shape is another.
    """
    given = {"scale": scale, "B": B, "input_mean": input_mean, "input_var": input_var}
    operands = _checked(X, (_channels(X),), given)
    if not training_mode:
        return (_normalized(X, operands, epsilon),)
    x = widened(X)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean = np.asarray(x.mean(axis=axes, keepdims=True)[0])
    var = np.asarray(x.var(axis=axes, keepdims=True)[0])
    y = _normalized(X, [*operands[:2], mean, var], epsilon)
    running = [
        (widened(old) * momentum + new.reshape(-1) * (1 - momentum)).astype(old.dtype)
        for old, new in ((input_mean, mean), (input_var, var))
    ]
    return (y, *running)


def _channels(x: Array) -> int:
    check_rank("X", x.shape, 1, "(N, C, D1, ..., Dn)")
    return 1 if x.ndim == 1 else x.shape[1]


def _checked(x: Array, shape: Ints, given: dict[str, Array]) -> list[Reals]:
    """Return the operands in a shape that broadcasts to X."""
    for name, array in given.items():
        check_shape(name, array.shape, shape, f"channels of `X` with shape {x.shape}")
    one_each = len(shape) == 1 and x.ndim > 1
    broadcast = (*shape, *(1,) * (x.ndim - 2)) if one_each else shape
    return [widened(array).reshape(broadcast) for array in given.values()]


def _normalized(x: Array, operands: list[Reals], epsilon: float) -> Array:
    scale, shift, mean, var = operands
    y = (widened(x) - mean) / np.sqrt(var + var.dtype.type(epsilon)) * scale + shift
    return narrowed(y, x.dtype)


# LpNormalization: division by a norm along an axis.


def lp_normalization_1(input: Array, *, axis: int, p: int) -> Value:
    """Divide by the sum of absolute values (p of 1), or by the root of the sum of squares (2).

    Computed in float64 and rounded once, so that squares of a float32 neither vanish nor overflow.
    Zeros where the norm is zero. onnx.reference 1.23.2 takes p of 1 without the absolute value.

    Raises:
        KernelError: If `axis` is outside the rank, or `p` is another number.
    """
    front = count_axis(axis, input.ndim, of="input")
    if p not in (1, 2):
        raise KernelError(f"`p` is {p}, expected 1 or 2")
    x = input.astype(np.float64)
    norm = np.linalg.norm(x, ord=p, axis=front, keepdims=True)
    y = np.divide(x, norm, out=np.zeros_like(x), where=np.broadcast_to(norm != 0, x.shape))
    return y.astype(input.dtype)


# LRN: division by a power of the squares of neighbouring channels.


def lrn_1(X: Array, *, alpha: float, beta: float, bias: float, size: int) -> Array:
    """Divide by (bias + alpha / size * sum of squares) ** beta over neighbouring channels.

    Channel c sums over c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), as far as they exist.
    16-bit types are computed in float32 and rounded once.

    Raises:
        KernelError: If the rank is below 2 or `size` below 1.
    """
    check_rank("X", X.shape, 2, "(N, C, D1, ..., Dn)")
    if size < 1:
        raise KernelError(f"`size` is {size}, expected 1 or more")
    x = widened(X)
    channels = x.shape[1]
    squares = x * x
    total = np.zeros_like(x)
    before, behind = (size - 1) // 2, size // 2
    for shift in range(max(-before, 1 - channels), min(behind, channels - 1) + 1):
        first, last = max(0, -shift), channels - max(0, shift)
        total[:, first:last] += squares[:, first + shift : last + shift]
    y = x / (bias + alpha / size * total) ** beta
    return narrowed(y, X.dtype)


# MeanVarianceNormalization: zero mean and unit variance over given axes.


_EPSILON = 1e-9
"""Added to the standard deviation by the schema's function body; the formula has none."""


def mean_variance_normalization_9(X: Array, *, axes: Ints) -> Array:
    """Compute (X - mean) / (standard deviation + 1e-9), so that constants become zero.

    16-bit types are computed in float32 and rounded once.

    Raises:
        KernelError: If an axis is outside the rank, or given twice.
    """
    front = count_axes(axes, X.ndim, of="X")
    x = widened(X)
    distance = x - mean_over(x, front)
    deviation = np.sqrt(mean_over(distance * distance, front))
    y = distance / (deviation + _EPSILON)
    return narrowed(y, X.dtype)


# Softmax, LogSoftmax and Hardmax: one axis since version 13, all trailing axes before.


def softmax(x: Reals, axis: int) -> Reals:
    """Compute exp(x) / sum(exp(x)) over one axis, shifted by the maximum.

    16-bit types are computed in float32 and rounded once. A row of nothing but minus infinity, or
    with plus infinity or NaN, is NaN throughout.
    """
    shifted: Reals = x - x.max(axis=axis, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=axis, keepdims=True)
    return shifted


def log_softmax(x: Reals, axis: int) -> Reals:
    """Compute x - log(sum(exp(x))) over one axis, as `softmax` otherwise."""
    shifted: Reals = x - x.max(axis=axis, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


def hardmax(x: Reals, axis: int) -> Reals:
    """Return 1 for the first maximum along an axis, 0 elsewhere; NaN counts as the maximum."""
    result = np.zeros_like(x)
    np.put_along_axis(result, x.argmax(axis=axis, keepdims=True), 1, axis=axis)
    return result


def forms_of_softmax(formula: Callable[[Array, int], Array]) -> Mapping[int, KernelFunction]:
    """Return kernels of one axis, from version 13 on, and of all axes from one on, before it.

    An axis of length 0 gives an empty result. Negative axes count
    from the back; version 1 does not say so. Both raise KernelError for an axis outside the rank.
    """

    def over_one(input: Array, *, axis: int) -> Array:
        front = count_axis(axis, input.ndim, of="input")
        if input.size == 0:
            return input.copy()
        return narrowed(formula(widened(input), front), input.dtype)

    def over_trailing(input: Array, *, axis: int) -> Array:
        front = count_axis(axis, input.ndim, of="input")
        rows = math.prod(input.shape[:front])
        flat = input.reshape(rows, math.prod(input.shape[front:]))
        return over_one(flat, axis=1).reshape(input.shape)

    return {1: over_trailing, 13: over_one}


LINES: Lines = {
    "Hardmax": forms_of_softmax(hardmax),
    "LogSoftmax": forms_of_softmax(log_softmax),
    "Softmax": forms_of_softmax(softmax),
    "BatchNormalization": {7: batch_normalization_7, 14: batch_normalization_14},
    "LRN": {1: lrn_1},
    "LpNormalization": {1: lp_normalization_1},
    "MeanVarianceNormalization": {9: mean_variance_normalization_9},
}
"""Operators of this module with their kernels, oldest first."""
