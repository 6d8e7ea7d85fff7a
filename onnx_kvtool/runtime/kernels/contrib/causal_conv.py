"""Causal convolutions of `com.microsoft`: dilated, channels in any place, sequences packed."""

from __future__ import annotations

import itertools
import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.states import causal_sum
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_input, refuse_value
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = ["causal_conv_with_state", "sequence_bounds", "varlen_causal_conv_with_state"]


def causal_conv_with_state(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str,
    channels_last: int,
    dilation: int,
    input_channel_offset: int,
    input_channels: int,
    ndim: int,
    state_channels_last: int,
    state_length: int,
    state_update_capacity: int,
    state_window: int,
) -> tuple[Array, Array]:
    """Sum positions `dilation` apart of each channel, weighted; 16-bit types in float32.

    Args:
        input: (B, C, L), or with `channels_last` (B, L, ...), C being the product of the rest.
        weight: (C, 1, k); the last tap weighs the current position.
        bias: (C,).
        past_state: (B, C, P) or (B, P, ...), P = (k - 1) * dilation; None for zeros.
        activation: `none`, or `silu` and `swish`: the sum times its sigmoid.
        channels_last: Whether positions come before channels, in the states too.
        dilation: How far apart taps are, 1 or more.
        input_channel_offset: 0.
        input_channels: 0.
        ndim: 1.
        state_channels_last: -1.
        state_length: 0.
        state_update_capacity: 0.
        state_window: 0.

    Returns:
        output, of the shape of `input`; present_state, of the shape of `past_state`, the last
        positions as they are.

    Raises:
        KernelError: If a shape or the dilation is another, the activation unknown, or an attribute
            asks for what onnxruntime 1.32 has on GPUs alone.
    """
    refuse_value("ndim", ndim, 1)
    refuse_value("state_channels_last", state_channels_last, -1)
    for name, value in (
        ("input_channel_offset", input_channel_offset),
        ("input_channels", input_channels),
        ("state_length", state_length),
        ("state_update_capacity", state_update_capacity),
        ("state_window", state_window),
    ):
        refuse_value(name, value, 0)
    if dilation < 1:
        raise KernelError(f"`dilation` is {dilation}, expected 1 or more")
    if input.ndim < 3 or (input.ndim > 3 and not channels_last):
        layout = "(B, L, ...)" if channels_last else "(B, C, L)"
        raise KernelError(f"`input` has shape {input.shape}, expected {layout}")
    if weight.ndim != 3 or weight.shape[2] == 0:
        raise KernelError(f"`weight` has shape {weight.shape}, expected (C, 1, k), k of 1 or more")
    inner = input.shape[2:]
    x = _turned(input) if channels_last else input
    rows = (weight.shape[2] - 1) * dilation
    layout_shape = (len(x), rows, *inner) if channels_last else (*x.shape[:2], rows)
    if past_state is None:
        past_state = np.zeros(layout_shape, input.dtype)
    check_shape("past_state", past_state.shape, layout_shape, "what the taps reach back to")
    past = _turned(past_state) if channels_last else past_state
    joined = np.concatenate([past, x], axis=2)
    output = causal_sum(joined, weight, bias, activation, dilation)
    present = joined[:, :, x.shape[2] :]
    if channels_last:
        output, present = (v.swapaxes(1, 2) for v in (output, present))
        return output.reshape(input.shape), present.reshape(layout_shape)
    return output, present


def _turned(rows: Array) -> Array:
    """Return (B, L, ...) as (B, C, L)."""
    return rows.reshape(*rows.shape[:2], math.prod(rows.shape[2:])).swapaxes(1, 2)


def varlen_causal_conv_with_state(
    input: Array,
    weight: Array,
    cumulative_sequence_length: Array,
    bias: Array | None,
    initial_state: Array,
    capture_count: Array | None = None,
    kernel_delta: Array | None = None,
    previous_mask: Array | None = None,
    *,
    activation: str,
    delta_offset: int,
    dilation: int,
    group_size: int,
    state_update_capacity: int,
) -> tuple[Array, ...]:
    """Convolve sequences that lie behind each other, each with a state of its own.

    Args:
        input: (N, C), the tokens of all sequences.
        weight: (C, 1, k); the last tap weighs the current token.
        cumulative_sequence_length: 0, and where each sequence ends: (B + 1,).
        bias: (C,); None for zeros.
        initial_state: (B, C, P), P = (k - 1) * dilation.
        capture_count: How many of its first tokens are captured of each sequence: (B,).
        kernel_delta: None.
        previous_mask: None.
        activation: `none`, `silu` or `swish`.
        delta_offset: 0.
        dilation: How far apart taps are, 1 or more.
        group_size: 1.
        state_update_capacity: For how many captured tokens there is room.

    Returns:
        output, (N, C); final_state, (B, C, P); state_update, (B, capacity, C), zeros behind what is
        captured.

    Raises:
        KernelError: If a shape, the dilation or the activation is another, the bounds do not fit
            the tokens, a count is there without room or the other way round, or weights differ from
            token to token, which onnxruntime 1.32 has on GPUs alone.
    """
    refuse_input("kernel_delta", kernel_delta)
    refuse_input("previous_mask", previous_mask)
    refuse_value("delta_offset", delta_offset, 0)
    refuse_value("group_size", group_size, 1)
    bounds = sequence_bounds(cumulative_sequence_length, len(input), "cumulative_sequence_length")
    if dilation < 1 or weight.ndim != 3 or weight.shape[2] == 0 or input.ndim != 2:
        raise KernelError(
            f"`input` has shape {input.shape}, `weight` {weight.shape} and `dilation` is "
            f"{dilation}, expected (N, C), (C, 1, k) with k of 1 or more, and 1 or more"
        )
    if (state_update_capacity > 0) != (capture_count is not None):
        raise KernelError(
            f"`state_update_capacity` is {state_update_capacity}, and `capture_count` "
            f"{'absent' if capture_count is None else 'given'}, expected both or neither"
        )
    count, rows = len(bounds) - 1, (weight.shape[2] - 1) * dilation
    shape = (count, input.shape[1], rows)
    check_shape("initial_state", initial_state.shape, shape, "what the taps of each reach back to")
    output, final = np.empty_like(input), np.empty_like(initial_state)
    update = np.zeros((count, state_update_capacity, input.shape[1]), input.dtype)
    for number, (first, last) in enumerate(itertools.pairwise(bounds)):
        tokens = input[first:last]
        joined = np.concatenate([initial_state[number], tokens.T], axis=1)[None]
        output[first:last] = causal_sum(joined, weight, bias, activation, dilation)[0].T
        final[number] = joined[0, :, last - first :]
        if capture_count is not None:
            some = tokens[: max(0, min(int(capture_count[number]), state_update_capacity))]
            update[number, : len(some)] = some
    return output, final, update


def sequence_bounds(given: Array, tokens: int, name: str) -> list[int]:
    """Return where sequences begin and the last one ends.

    Raises:
        KernelError: If they do not begin at 0, end at the last token, or go back.
    """
    bounds = [int(bound) for bound in given]
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != tokens or bounds != sorted(bounds):
        raise KernelError(f"`{name}` is {bounds}, expected numbers from 0 to {tokens} in order")
    return bounds
