"""LayerNormalization, GroupNormalization and their kin, over axes of one sample."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import KEPT_SHAPES, count_axis
from onnx_kvtool.runtime.kernels.conversion.rounding import round_to_half
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array, Dtype, Ints, Lines

# Rounding to a type between two steps that are computed in another.


Reals: TypeAlias = Array
"""Values in a type that numpy computes in: float32 or float64."""


def rounded(values: Reals, dtype: Dtype) -> Reals:
    """Return values rounded to an element type, but still in the type of the computation.

    The result is `values` itself where they have that type.
    """
    if values.dtype == dtype:
        return values
    if dtype == np.float16 and values.dtype == np.float32:
        return round_to_half(values)
    return values.astype(dtype).astype(values.dtype)


@functools.cache
def floating_type(number: int, attribute: str) -> Dtype:
    """Return the dtype of an element type that an attribute names.

    Raises:
        KernelError: If it is none of float (1), float16 (10), double (11) and bfloat16 (16).
    """
    import ml_dtypes

    known: dict[int, npt.DTypeLike] = {
        1: np.float32,
        10: np.float16,
        11: np.float64,
        16: ml_dtypes.bfloat16,
    }
    if number not in known:
        raise KernelError(
            f"`{attribute}` is {number}, expected 1 (float), 10 (float16), 11 (double) or 16 "
            "(bfloat16)"
        )
    return np.dtype(known[number])


# Zero mean and unit variance, which most normalizations begin with.


class Standardized(NamedTuple):
    """Values in the type of their computation, float32 or float64.

    Attributes:
        normalized: (x - mean) / sqrt(variance + epsilon), of the shape of x.
        mean: Of the shape of x with the axes of length 1.
        inverse: 1 / sqrt(variance + epsilon), of the shape of `mean`.
    """

    normalized: Reals
    mean: Reals
    inverse: Reals


def standardize(x: Reals, axes: Ints, epsilon: float, stash: Dtype) -> Standardized:
    """Standardize over some axes, with the variance as the mean squared distance from the mean.

    The function bodies of onnx 1.23.2 take the mean of squares less the square of the mean, which
    cancels where the mean is great; the texts of the operators do not.

    `x` is rounded to `stash` already. If that has 16 bits, sums are float32, and mean, inverse and
    normalized values are rounded to it. Axes of length 0 make NaN.
    """
    mean = rounded(mean_over(x, axes), stash)
    distance = x - mean
    variance = mean_over(distance * distance, axes)
    inverse = rounded(1 / np.sqrt(variance + variance.dtype.type(epsilon)), stash)
    return Standardized(rounded(distance * inverse, stash), mean, inverse)


def mean_over(x: Reals, axes: Ints) -> Reals:
    """Return the mean over some axes, which stay with length 1; over none of them, NaN."""
    count = x.dtype.type(math.prod([x.shape[axis] for axis in axes]))
    return np.asarray(np.add.reduce(x, axis=axes, keepdims=True) / count)


# Checks of shapes that several kernels share.


@functools.lru_cache(KEPT_SHAPES)
def check_broadcasts(name: str, shape: Ints, target_name: str, target: Ints) -> None:
    """Check that a shape is unidirectionally broadcastable to another.

    Raises:
        KernelError: If its rank is greater, or a dimension, aligned at the end, is neither 1 nor
            that of the target.
    """
    aligned = target[len(target) - len(shape) :] if len(shape) <= len(target) else None
    if aligned is None or any(a not in (1, b) for a, b in zip(shape, aligned, strict=True)):
        raise KernelError(
            f"`{name}` has shape {shape}, which does not broadcast to {target} of `{target_name}`"
        )


def check_rank(name: str, shape: Ints, least: int, layout: str) -> None:
    """Check that a shape has a least rank.

    Raises:
        KernelError: If it has fewer dimensions; the message gives `layout`.
    """
    if len(shape) < least:
        raise KernelError(
            f"`{name}` has rank {len(shape)} (shape {shape}), expected at least {least}: {layout}"
        )


def check_shape(name: str, shape: Ints, expected: Ints, why: str) -> None:
    """Check that a shape is what it has to be.

    Raises:
        KernelError: If it is another; the message ends in `why`.
    """
    if shape != expected:
        raise KernelError(f"`{name}` has shape {shape}, expected {expected}: {why}")


# LayerNormalization and RMSNormalization: over the last axes.


def layer_normalization_17(
    X: Array, Scale: Array, B: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, Array, Array]:
    """Standardize the axes from `axis` on, then scale and shift.

    The first stage is computed in `stash_type`, for a double as well; the normalized values are
    rounded to the type of `X`; the second stage is rounded once.

    `stash_type` is 1 (float) or 16 (bfloat16); sums of the latter are float32. `Mean` and
    `InvStdDev` are of this type, with the normalized axes of length 1.

    Raises:
        KernelError: If `axis` is outside the rank, a shape does not broadcast, or `stash_type` is
            another type.
    """
    front = count_axis(axis, X.ndim, of="X")
    check_broadcasts("Scale", Scale.shape, "X", X.shape)
    if B is not None:
        check_broadcasts("B", B.shape, "X", X.shape)
    if stash_type not in (1, 16):
        raise KernelError(f"`stash_type` is {stash_type}, expected 1 (float) or 16 (bfloat16)")
    stash = floating_type(stash_type, "stash_type")
    stage = widened(X.astype(stash, copy=False))
    result = standardize(stage, tuple(range(front, X.ndim)), epsilon, stash)
    y = widened(result.normalized.astype(X.dtype, copy=False)) * widened(Scale)
    if B is not None:
        y += widened(B)
    return (
        y.astype(X.dtype, copy=False),
        result.mean.astype(stash, copy=False),
        result.inverse.astype(stash, copy=False),
    )


def rms_normalization_23(
    X: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int
) -> Array:
    """Divide by the root of the mean square over the axes from `axis` on, then scale.

    The first stage is computed in `stash_type` and its result rounded to the type of `X`.

    `stash_type` is 1 (float), 10 (float16), 11 (double) or 16 (bfloat16); the sums of 16-bit types
    are float32. `Y` is of the type of `scale`, which may be another than that of `X`.

    Raises:
        KernelError: If `axis` is outside the rank, `scale` does not broadcast, or `stash_type` is
            another type.
    """
    front = count_axis(axis, X.ndim, of="X")
    check_broadcasts("scale", scale.shape, "X", X.shape)
    stash = floating_type(stash_type, "stash_type")
    axes = tuple(range(front, X.ndim))
    stage = widened(X.astype(stash, copy=False))
    square = rounded(mean_over(stage * stage, axes), stash)
    root = rounded(np.sqrt(square + square.dtype.type(epsilon)), stash)
    normalized = rounded(stage / root, stash).astype(X.dtype, copy=False)
    return (widened(normalized) * widened(scale)).astype(scale.dtype, copy=False)


# GroupNormalization and InstanceNormalization: over space, for some channels at a time.


def group_normalization_18(
    X: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int
) -> Array:
    """Compute GroupNormalization-18: `scale` and `bias` of (num_groups,), rounded once at the end.

    Raises:
        KernelError: As `group_normalization_21`.
    """
    _check_groups(X, num_groups)
    for name, shape in (("scale", scale.shape), ("bias", bias.shape)):
        check_shape(name, shape, (num_groups,), "one number for each group")
    x = widened(X)
    y = _in_groups(x, num_groups, epsilon, x.dtype)
    y = y.reshape(X.shape[0], num_groups, -1)
    y = y * widened(scale)[:, None] + widened(bias)[:, None]
    return y.reshape(X.shape).astype(X.dtype, copy=False)


def group_normalization_21(
    X: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int, stash_type: int
) -> Array:
    """Standardize each group of channels of each instance, then scale and shift each channel.

    The first stage is computed in `stash_type` and its result rounded to the type of `X`; the
    second is rounded once.

    `stash_type` is 1 (float), 10 (float16), 11 (double) or 16 (bfloat16); the sums of 16-bit types
    are float32.

    Raises:
        KernelError: If the rank is below 2, `num_groups` does not divide C, `scale` or `bias` have
            another shape, or `stash_type` is another type.
    """
    _check_groups(X, num_groups)
    for name, shape in (("scale", scale.shape), ("bias", bias.shape)):
        check_shape(name, shape, (X.shape[1],), "one number for each channel")
    stash = floating_type(stash_type, "stash_type")
    stage = widened(X.astype(stash, copy=False))
    y = _in_groups(stage, num_groups, epsilon, stash).astype(X.dtype, copy=False)
    y = widened(y) * _per_channel(scale, X.ndim) + _per_channel(bias, X.ndim)
    return y.astype(X.dtype, copy=False)


def instance_normalization_1(
    input: Array,
    scale: Array,
    B: Array,
    *,
    epsilon: float,
    consumed_inputs: Ints | None = None,
) -> Array:
    """Standardize each channel of each instance, then scale and shift it, rounded once at the end.

    `input` is (N, C, D1, ..., Dn), `scale` and `B` are (C,). `consumed_inputs` has no meaning.

    Raises:
        KernelError: If the rank is below 3, or `scale` or `B` have another shape.
    """
    check_rank("input", input.shape, 3, "(N, C, D1, ..., Dn)")
    for name, shape in (("scale", scale.shape), ("B", B.shape)):
        check_shape(name, shape, (input.shape[1],), "one number for each channel")
    x = widened(input)
    y = standardize(x, tuple(range(2, x.ndim)), epsilon, x.dtype).normalized
    y = y * _per_channel(scale, x.ndim) + _per_channel(B, x.ndim)
    return y.astype(input.dtype, copy=False)


def _check_groups(x: Array, groups: int) -> None:
    check_rank("X", x.shape, 2, "(N, C, D1, ..., Dn)")
    if groups < 1 or x.shape[1] % groups:
        raise KernelError(
            f"`num_groups` is {groups}, expected a divisor of {x.shape[1]}, the channels of `X` "
            f"with shape {x.shape}"
        )


def _in_groups(x: Reals, groups: int, epsilon: float, stash: Dtype) -> Reals:
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    axes = tuple(range(2, split.ndim))
    return standardize(split, axes, epsilon, stash).normalized.reshape(x.shape)


def _per_channel(numbers: Array, rank: int) -> Reals:
    """Return (C,) as (C, 1, ..., 1), which broadcasts to (N, C, D1, ..., Dn)."""
    return widened(numbers).reshape(-1, *(1,) * (rank - 2))


LINES: Lines = {
    "GroupNormalization": {18: group_normalization_18, 21: group_normalization_21},
    "InstanceNormalization": {1: instance_normalization_1},
    "LayerNormalization": {17: layer_normalization_17},
    "RMSNormalization": {23: rms_normalization_23},
}
"""Operators of this module with their kernels, oldest first."""
