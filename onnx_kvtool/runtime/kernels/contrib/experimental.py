"""Operators that were experimental in ONNX before version 1.5, and that onnxruntime still has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = [
    "affine",
    "crop",
    "dynamic_slice",
    "image_scaler",
    "parametric_softplus",
    "scale_",
    "scaled_tanh",
]


def affine(X: Array, *, alpha: float, beta: float) -> tuple[Array]:
    """Return alpha * X + beta."""
    return (narrowed(np.asarray(widened(X) * X.dtype.type(alpha) + X.dtype.type(beta)), X.dtype),)


def crop(
    input: Array, *, border: Sequence[int] | None, scale: Sequence[int] | None
) -> tuple[Array]:
    """Return a part of pictures (N, C, H, W).

    Args:
        input: The pictures.
        border: What is left out at the left, the top, the right and the bottom.
        scale: Height and width of the part, which then ends neither right nor at the bottom.

    Raises:
        KernelError: If the border is no four numbers, or the part no part.
    """
    if input.ndim != 4 or border is None or len(border) != 4 or min(border) < 0:
        raise KernelError(f"`border` is {border} of `input` {input.shape}, expected four numbers")
    left, top, right, bottom = border
    height, width = scale or (input.shape[2] - top - bottom, input.shape[3] - left - right)
    if min(height, width) < 0 or top + height > input.shape[2] or left + width > input.shape[3]:
        raise KernelError(f"({height}, {width}) behind `border` {border} is no part of `input`")
    return (input[:, :, top : top + height, left : left + width].copy(),)


def dynamic_slice(
    data: Array, starts: Array, ends: Array, axes: Array | None = None
) -> tuple[Array]:
    """Return a part of `data`; bounds that are negative count from the end, others are clamped.

    Raises:
        KernelError: If there are not as many starts as ends and axes, or an axis comes twice.
    """
    chosen = range(len(starts)) if axes is None else [int(axis) for axis in axes]
    places = [count_axis(axis, data.ndim, of="data") for axis in chosen]
    if not len(starts) == len(ends) == len(places) == len(set(places)):
        raise KernelError(f"{len(starts)} `starts`, {len(ends)} `ends` and axes {list(chosen)}")
    cut = [slice(None)] * data.ndim
    for place, start, end in zip(places, starts, ends, strict=True):
        cut[place] = slice(int(start), int(end))
    return (data[tuple(cut)].copy(),)


def image_scaler(input: Array, *, bias: Sequence[float] | None, scale: float) -> tuple[Array]:
    """Return scale * input + a number for each channel of (N, C, H, W).

    Raises:
        KernelError: If there are not as many numbers as channels.
    """
    if input.ndim != 4 or bias is None or len(bias) != input.shape[1]:
        raise KernelError(f"`bias` is {bias} of `input` {input.shape}, expected one each channel")
    y = widened(input) * input.dtype.type(scale)
    for channel, shift in enumerate(bias):
        y[:, channel] += input.dtype.type(shift)
    return (narrowed(y, input.dtype),)


def parametric_softplus(X: Array, *, alpha: float | None, beta: float | None) -> tuple[Array]:
    """Return alpha * log(1 + exp(beta * X))."""
    alpha, beta = _given(alpha, beta)
    return (narrowed(alpha * np.logaddexp(0, beta * X.astype(np.float64)), X.dtype),)


def scale_(input: Array, *, scale: float) -> tuple[Array]:
    """Return scale * input."""
    return (narrowed(np.asarray(widened(input) * input.dtype.type(scale)), input.dtype),)


def scaled_tanh(input: Array, *, alpha: float | None, beta: float | None) -> tuple[Array]:
    """Return alpha * tanh(beta * input)."""
    alpha, beta = _given(alpha, beta)
    return (narrowed(alpha * np.tanh(beta * input.astype(np.float64)), input.dtype),)


def _given(*numbers: float | None) -> list[float]:
    if None in numbers:
        raise KernelError("`alpha` or `beta` is absent, which onnxruntime requires")
    return [number for number in numbers if number is not None]
