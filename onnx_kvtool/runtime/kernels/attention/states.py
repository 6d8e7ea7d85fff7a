"""LinearAttention and CausalConvWithState, which carry a state from step to step."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.bias_and_weights import split_heads
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

# LinearAttention-27: attention by a state that each token updates.


_UPDATE_RULES = ("linear", "gated", "delta", "gated_delta")


def linear_attention_27(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    chunk_size: int,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float,
    update_rule: str,
) -> tuple[Array, Array]:
    """Update a state by each token in turn and read it with the query, in float32.

    For each key/value head, with state S: S *= exp(decay), if gated; v = beta * (v - S^T k), if
    delta; S += k v^T; and for each query head that shares it, output = scale * S^T q.

    Args:
        query: (B, T, H * D).
        key: (B, T, KV * D); KV divides H.
        value: (B, T, KV * E).
        past_state: (B, KV, D, E); None for zeros.
        decay: (B, T, KV) or (B, T, KV * D), logarithms; given exactly for the gated rules.
        beta: (B, T, KV) or (B, T, 1); given exactly for the delta rules.
        chunk_size: A hint for other implementations.
        kv_num_heads: KV.
        q_num_heads: H.
        scale: Factor of the output; 0 for 1 / sqrt(D).
        update_rule: `linear`, `gated`, `delta` or `gated_delta`.

    Returns:
        output, (B, T, H * E), of the type of `query`; present_state, (B, KV, D, E), of the type of
        `past_state`, or of `query` without it, where the text leaves the type open.

    Raises:
        KernelError: If the rule is another; if a gate is missing or not part of the rule; if head
            counts or shapes do not fit each other.
    """
    _check_rule(update_rule, decay, beta)
    if query.ndim != 3 or key.ndim != 3 or value.ndim != 3:
        raise KernelError(
            f"`query`, `key` and `value` have shapes {query.shape}, {key.shape} and {value.shape}, "
            "expected three dimensions each"
        )
    q = split_heads(query, "query", q_num_heads, "q_num_heads").astype(np.float32)
    k = split_heads(key, "key", kv_num_heads, "kv_num_heads").astype(np.float32)
    v = split_heads(value, "value", kv_num_heads, "kv_num_heads").astype(np.float32)
    batch, heads, tokens, size = q.shape
    if size == 0:
        raise KernelError("the head_size of `query` is 0, expected 1 or more")
    if heads % kv_num_heads:
        raise KernelError(f"`q_num_heads` is {heads}, expected a multiple of {kv_num_heads}")
    check_shape("key", key.shape, (batch, tokens, kv_num_heads * size), "sizes of `query`")
    check_shape("value", value.shape, (batch, tokens, value.shape[2]), "sizes of `query`")
    state_shape = (batch, kv_num_heads, size, v.shape[3])
    state = np.zeros(state_shape, np.float32)
    if past_state is not None:
        check_shape("past_state", past_state.shape, state_shape, "(B, kv_num_heads, d_k, d_v)")
        state = past_state.astype(np.float32)
    forget = _gate("decay", decay, k.shape, kv_num_heads * size)
    rate = _gate("beta", beta, k.shape, 1)
    if forget is not None:
        np.exp(forget, out=forget)
    q *= np.float32(scale if scale else 1.0 / math.sqrt(size))
    grouped = q.reshape(batch, kv_num_heads, heads // kv_num_heads, tokens, size)
    output = np.empty((*grouped.shape[:4], v.shape[3]), np.float32)
    for token in range(tokens):
        column, row = k[:, :, token, :, None], v[:, :, token, None]
        if forget is not None:
            state = state * forget[:, :, token, :, None]
        if rate is not None:
            row = rate[:, :, token, :, None] * (row - column.swapaxes(-1, -2) @ state)
        state = state + column * row
        output[:, :, :, token] = grouped[:, :, :, token] @ state
    by_token = output.reshape(batch, heads, tokens, v.shape[3]).transpose(0, 2, 1, 3)
    flat = by_token.reshape(batch, tokens, heads * v.shape[3])
    state_type = query.dtype if past_state is None else past_state.dtype
    return flat.astype(query.dtype), state.astype(state_type)


def _check_rule(rule: str, decay: Array | None, beta: Array | None) -> None:
    if rule not in _UPDATE_RULES:
        raise KernelError(f"`update_rule` is `{rule}`, expected one of {', '.join(_UPDATE_RULES)}")
    for name, gate, needed in (
        ("decay", decay, "gated" in rule),
        ("beta", beta, "delta" in rule),
    ):
        if needed != (gate is not None):
            state = "missing" if gate is None else "given"
            need = "needs it" if needed else "has no use for it"
            raise KernelError(f"`{name}` is {state}, but the rule `{rule}` {need}")


def _gate(name: str, gate: Array | None, shape: Ints, wide: int) -> Reals | None:
    """Return (B, KV or 1, T, n) of a gate that is (B, T, KV) or (B, T, `wide`), if there is one."""
    if gate is None:
        return None
    batch, heads, tokens, _ = shape
    expected = (batch, tokens, heads), (batch, tokens, wide)
    if gate.shape not in expected:
        raise KernelError(
            f"`{name}` has shape {gate.shape}, expected {expected[0]} or {expected[1]}"
        )
    return split_heads(gate, name, min(heads, gate.shape[2]), "kv_num_heads").astype(np.float32)


# CausalConvWithState-27: a depthwise convolution over the past.


def causal_conv_with_state_27(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str,
) -> tuple[Array, Array]:
    """Sum the last k positions of each channel, weighted; 16-bit types in float32, rounded once.

    `input` is (B, C, L) and `weight` (C, 1, k); its last tap weighs the current position.
    `past_state` is (B, C, k - 1), the positions before, zeros if absent. The activations `silu` and
    `swish` multiply the sum by its sigmoid.

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

    if activation not in ("none", "silu", "swish"):
        raise KernelError(f"`activation` is `{activation}`, expected `none`, `silu` or `swish`")
    check_shape("weight", weight.shape, (channels, 1, taps), "one kernel for each channel")
    if bias is not None:
        check_shape("bias", bias.shape, (channels,), "one number for each channel")
    joined = np.concatenate([past, input], axis=2)  # (B, C, k - 1 + L)
    values, kernel = widened(joined), widened(weight)
    total = np.zeros(input.shape, values.dtype)
    for tap in range(taps):
        total += kernel[:, :, tap] * values[:, :, tap : tap + length]
    if bias is not None:
        total += widened(bias)[:, None]
    if activation != "none":
        total /= 1 + np.exp(-total)
    return total.astype(joined.dtype), joined[:, :, length:]


LINES: Lines = {
    "CausalConvWithState": {27: causal_conv_with_state_27},
    "LinearAttention": {27: linear_attention_27},
}
"""Operators of this module with their kernels, oldest first."""
