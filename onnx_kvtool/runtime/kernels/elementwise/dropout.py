"""Dropout."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.elementwise.scalars import read_scalar
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["dropout_7", "dropout_10", "dropout_12"]


def dropout_7(data: Array, *, ratio: float) -> tuple[Array, Array]:
    """Compute Dropout-7, which has inference only: `data` and a mask of ones of its dtype."""
    return data, np.ones(data.shape, data.dtype)


def dropout_10(data: Array, *, ratio: float) -> tuple[Array, Array]:
    """Compute Dropout-10, which has inference only: `data` and a mask of true."""
    return data, np.ones(data.shape, np.bool_)


def dropout_12(
    data: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    context: Context,
) -> tuple[Array, Array]:
    """Compute Dropout from version 12 on: `data` and a mask of true, unless training.

    In training mode, elements are dropped at random, which no text fixes; they are drawn as
    onnx.reference 1.23 does, by the legacy generator of numpy, whose stream for a seed never
    changes. Without a seed it is 0, so that runs can be compared.

    Args:
        data: Any shape.
        ratio: The share to drop, a scalar in [0, 1); None is 0.5. Read in training mode only.
        training_mode: A bool scalar; None is false.
        seed: Of the generator.
        context: Told if elements are dropped at random.

    Returns:
        `data` or what is left of it, scaled by 1 / (1 - ratio); and where elements are left.

    Raises:
        KernelError: If `ratio` or `training_mode` is no scalar, or `ratio` is outside [0, 1) in
            training mode.
    """
    everything = np.ones(data.shape, np.bool_)
    if training_mode is None or not read_scalar(training_mode, "training_mode", context):
        return data, everything
    share = 0.5 if ratio is None else float(np.float64(read_scalar(ratio, "ratio", context)))
    if not 0 <= share < 1:
        raise KernelError(f"`ratio` is {share}, expected 0 or more and less than 1")
    if share == 0:
        return data, everything
    context.warn("elements are dropped at random in training mode, as onnx.reference draws them")
    generator = np.random.RandomState(0 if seed is None else seed)
    left = generator.uniform(0, 1, data.shape) >= share
    wide = widened(data)
    scale = np.asarray(1 / (1 - share), wide.dtype)
    return narrowed(np.asarray(np.where(left, wide * scale, 0)), data.dtype), np.asarray(left)
