"""Operators of diffusion models, which onnxruntime has on GPUs alone, and NhwcMaxPool.

16-bit types are computed in float32 and rounded once.
"""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape
from onnx_kvtool.runtime.kernels.windows import (
    Sliding,
    convolved,
    in_front,
    max_pooled,
    to_the_end,
)

__all__ = ["bias_add", "group_norm", "nhwc_conv", "nhwc_max_pool", "skip_group_norm"]

_Ints = tuple[int, ...] | None


def bias_add(X: Array, bias: Array, skip: Array) -> tuple[Array]:
    """Return the sum of (N, S, C), a bias (C,) and a residual (N, S, C)."""
    return (narrowed(np.asarray(widened(X) + widened(bias) + widened(skip)), X.dtype),)


def group_norm(
    X: Array,
    gamma: Array,
    beta: Array,
    *,
    activation: int,
    channels_last: int,
    epsilon: float,
    groups: int,
) -> tuple[Array]:
    """Standardize groups of channels, scale and shift each channel, and activate.

    Args:
        X: (N, ..., C), or (N, C, ...) unless `channels_last`.
        gamma: (C,), of any type.
        beta: (C,).
        activation: 0 for none, 1 for x * sigmoid(x).
        channels_last: Where the channels are.
        epsilon: Added to the variance.
        groups: A divisor of C.

    Raises:
        KernelError: For another activation or shape.
    """
    y = _normalized(widened(X), gamma, beta, activation, channels_last, epsilon, groups)
    return (narrowed(y, X.dtype),)


def skip_group_norm(
    X: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: int,
    channels_last: int,
    epsilon: float,
    groups: int,
) -> tuple[Array, Array]:
    """Return `group_norm` of a sum, and the sum.

    Args:
        X: (N, H, W, C).
        gamma: (C,).
        beta: (C,).
        skip: (N, H, W, C), (N, 1, 1, C) or (N, C).
        bias: (C,); None for zero.
        activation: As in `group_norm`, as the rest.
        channels_last: 1.
        epsilon: Added to the variance.
        groups: A divisor of C.

    Raises:
        KernelError: For another layout, activation or shape.
    """
    refuse_value("channels_last", channels_last, 1)
    added = widened(skip)
    total = widened(X) + (added[:, None, None, :] if skip.ndim == 2 else added)
    if bias is not None:
        total = total + widened(bias)
    check_shape("skip", total.shape, X.shape, "what broadcasts to `X`")
    y = _normalized(total, gamma, beta, activation, channels_last, epsilon, groups)
    return narrowed(y, X.dtype), narrowed(np.asarray(total), X.dtype)


def _normalized(
    x: Reals,
    gamma: Array,
    beta: Array,
    activation: int,
    channels_last: int,
    epsilon: float,
    groups: int,
) -> Reals:
    refuse_value("activation", activation, 0, 1)
    front = in_front(x) if channels_last else x
    channels = front.shape[1]
    for name, vector in (("gamma", gamma), ("beta", beta)):
        check_shape(name, vector.shape, (channels,), "one for each channel of `X`")
    if groups < 1 or channels % groups:
        raise KernelError(f"`groups` is {groups}, expected a divisor of {channels}")
    parts = front.reshape(front.shape[0], groups, -1).astype(np.float64)
    mean = parts.mean(axis=2, keepdims=True)
    spread = parts.var(axis=2, keepdims=True)
    with np.errstate(all="ignore"):
        parts = (parts - mean) / np.sqrt(spread + epsilon)
    per = (1, channels, *[1] * (front.ndim - 2))
    y = parts.reshape(front.shape) * widened(gamma).reshape(per) + widened(beta).reshape(per)
    y = y * sigmoid_of(y) if activation else y
    return np.asarray(to_the_end(y) if channels_last else y)


def nhwc_conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str,
    dilations: _Ints,
    group: int,
    kernel_shape: _Ints,
    pads: _Ints,
    strides: _Ints,
) -> tuple[Array]:
    """Convolve (N, ..., C) with (M, kernel..., C / group) and add a bias (M,): (N, ..., M)."""
    sliding = Sliding(auto_pad, dilations, pads, strides)
    y = to_the_end(convolved(in_front(widened(X)), in_front(widened(W)), sliding, group))
    return (narrowed(y if B is None else np.asarray(y + widened(B)), X.dtype),)


def nhwc_max_pool(
    x: Array,
    *,
    auto_pad: str,
    ceil_mode: int,
    dilations: _Ints,
    kernel_shape: tuple[int, ...],
    pads: _Ints,
    strides: _Ints,
) -> tuple[Array]:
    """Return the greatest code of each window of (N, ..., C)."""
    sliding = Sliding(auto_pad, dilations, pads, strides, ceil_mode != 0)
    return (to_the_end(max_pooled(in_front(x), kernel_shape, sliding)[0]),)
