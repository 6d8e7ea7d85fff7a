"""CausalConvWithState-27: a depthwise convolution over the past."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_shape

__all__ = ["causal_conv_with_state_27", "causal_sum"]


def causal_conv_with_state_27(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str,
) -> tuple[Array, Array]:
    """Sum the last k positions of each channel, weighted; 16-bit types in float32, rounded once.

    Args:
        input: (B, C, L).
        weight: (C, 1, k), k of 1 or more; the last tap weighs the current position.
        bias: (C,).
        past_state: (B, C, k - 1), the positions before; None for zeros.
        activation: `none`, or `silu` and `swish`: the sum times its sigmoid.

    Returns:
        output, (B, C, L); present_state, (B, C, k - 1), the last positions as they are.

    Raises:
        KernelError: If a shape is another, or the activation unknown.
    """
    if input.ndim != 3 or weight.ndim != 3 or weight.shape[2] == 0:
        raise KernelError(
            f"`input` and `weight` have shapes {input.shape} and {weight.shape}, expected "
            "(B, C, L) and (C, 1, k) with k of 1 or more"
        )
    batch, channels, length = input.shape
    taps = weight.shape[2]
    past_shape = (batch, channels, taps - 1)
    past = np.zeros(past_shape, input.dtype) if past_state is None else past_state
    check_shape("past_state", past.shape, past_shape, "one position less than the kernel")

    joined = np.concatenate([past, input], axis=2)  # (B, C, k - 1 + L)
    return causal_sum(joined, weight, bias, activation), joined[:, :, length:]


def causal_sum(
    joined: Array, weight: Array, bias: Array | None, activation: str, dilation: int = 1
) -> Array:
    """Return the weighted sum of positions that end in each one behind those of the past.

    Args:
        joined: (B, C, (k - 1) * dilation + L), the past in front.
        weight: (C, 1, k).
        bias: (C,); None for zeros.
        activation: `none`, `silu` or `swish`.
        dilation: How far apart the positions are.

    Returns:
        (B, C, L), of the type of `joined`.

    Raises:
        KernelError: If the weight or the bias is not one for each channel, or the activation
            unknown.
    """
    if activation not in ("none", "silu", "swish"):
        raise KernelError(f"`activation` is `{activation}`, expected `none`, `silu` or `swish`")
    batch, channels, count = joined.shape
    taps = weight.shape[2]
    check_shape("weight", weight.shape, (channels, 1, taps), "one kernel for each channel")
    if bias is not None:
        check_shape("bias", bias.shape, (channels,), "one number for each channel")
    values, kernel = widened(joined), widened(weight)
    length = count - (taps - 1) * dilation
    total = np.zeros((batch, channels, length), values.dtype)
    with np.errstate(all="ignore"):
        for tap in range(taps):
            first = tap * dilation
            total += kernel[:, :, tap] * values[:, :, first : first + length]
        if bias is not None:
            total += widened(bias)[:, None]
        if activation != "none":
            total /= 1 + np.exp(-total)
    return total.astype(joined.dtype)
