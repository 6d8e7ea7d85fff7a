"""GroupNormalization and InstanceNormalization: over space, for some channels at a time."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_rank, check_shape
from onnx_kvtool.runtime.kernels.normalization.precision import Reals, floating_type
from onnx_kvtool.runtime.kernels.normalization.standardize import standardize

__all__ = ["group_normalization_18", "group_normalization_21", "instance_normalization_1"]


def group_normalization_18(
    X: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int
) -> tuple[Array]:
    """Compute GroupNormalization-18: `scale` and `bias` of (num_groups,), rounded once at the end.

    Raises:
        KernelError: As `group_normalization_21`.
    """
    _check_groups(X, num_groups)
    for name, shape in (("scale", scale.shape), ("bias", bias.shape)):
        check_shape(name, shape, (num_groups,), "one number for each group")
    with np.errstate(all="ignore"):
        x = widened(X)
        y = _in_groups(x, num_groups, epsilon, x.dtype)
        y = y.reshape(X.shape[0], num_groups, -1)
        y = y * widened(scale)[:, None] + widened(bias)[:, None]
    return (y.reshape(X.shape).astype(X.dtype, copy=False),)


def group_normalization_21(
    X: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int, stash_type: int
) -> tuple[Array]:
    """Standardize each group of channels of each instance, then scale and shift each channel.

    The first stage is computed in `stash_type` and its result rounded to the type of `X`; the
    second is rounded once.

    Args:
        X: (N, C, D1, ..., Dn).
        scale: (C,).
        bias: (C,).
        epsilon: Added to the variance.
        num_groups: A divisor of C.
        stash_type: 1 (float), 10 (float16), 11 (double) or 16 (bfloat16); the sums of 16-bit types
            are float32.

    Raises:
        KernelError: If the rank is below 2, `num_groups` does not divide C, `scale` or `bias` have
            another shape, or `stash_type` is another type.
    """
    _check_groups(X, num_groups)
    for name, shape in (("scale", scale.shape), ("bias", bias.shape)):
        check_shape(name, shape, (X.shape[1],), "one number for each channel")
    stash = floating_type(stash_type, "stash_type")
    with np.errstate(all="ignore"):
        stage = widened(X.astype(stash, copy=False))
        y = _in_groups(stage, num_groups, epsilon, stash).astype(X.dtype, copy=False)
        y = widened(y) * _per_channel(scale, X.ndim) + _per_channel(bias, X.ndim)
    return (y.astype(X.dtype, copy=False),)


def instance_normalization_1(
    input: Array,
    scale: Array,
    B: Array,
    *,
    epsilon: float,
    consumed_inputs: tuple[int, ...] | None = None,
) -> tuple[Array]:
    """Standardize each channel of each instance, then scale and shift it, rounded once at the end.

    Args:
        input: (N, C, D1, ..., Dn), rank 3 or more.
        scale: (C,).
        B: (C,).
        epsilon: Added to the variance.
        consumed_inputs: Without a meaning today; version 1 has it.

    Raises:
        KernelError: If the rank is below 3, or `scale` or `B` have another shape.
    """
    check_rank("input", input.shape, 3, "(N, C, D1, ..., Dn)")
    for name, shape in (("scale", scale.shape), ("B", B.shape)):
        check_shape(name, shape, (input.shape[1],), "one number for each channel")
    with np.errstate(all="ignore"):
        x = widened(input)
        y = standardize(x, tuple(range(2, x.ndim)), epsilon, x.dtype).normalized
        y = y * _per_channel(scale, x.ndim) + _per_channel(B, x.ndim)
    return (y.astype(input.dtype, copy=False),)


def _check_groups(x: Array, groups: int) -> None:
    check_rank("X", x.shape, 2, "(N, C, D1, ..., Dn)")
    if groups < 1 or x.shape[1] % groups:
        raise KernelError(
            f"`num_groups` is {groups}, expected a divisor of {x.shape[1]}, the channels of `X` "
            f"with shape {x.shape}"
        )


def _in_groups(x: Reals, groups: int, epsilon: float, stash: np.dtype[np.generic]) -> Reals:
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    axes = tuple(range(2, split.ndim))
    return standardize(split, axes, epsilon, stash).normalized.reshape(x.shape)


def _per_channel(numbers: Array, rank: int) -> Reals:
    """Return (C,) as (C, 1, ..., 1), which broadcasts to (N, C, D1, ..., Dn)."""
    return widened(numbers).reshape(-1, *(1,) * (rank - 2))
