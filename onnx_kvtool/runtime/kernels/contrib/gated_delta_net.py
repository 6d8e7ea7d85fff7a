"""GatedDeltaNet of `com.microsoft`: a state that tokens decay and correct, sequence by sequence."""

from __future__ import annotations

import itertools
import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.states import UPDATE_RULES, by_each_token
from onnx_kvtool.runtime.kernels.contrib.causal_conv import sequence_bounds
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = ["gated_delta_net"]


def gated_delta_net(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    cu_seqlens: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    initial_state: Array | None = None,
    a_log: Array | None = None,
    dt_bias: Array | None = None,
    capture_count: Array | None = None,
    state_update_active: Array | None = None,
    *,
    beta_activation: str,
    chunk_size: int,
    gate_activation: str,
    gate_lower_bound: float,
    qk_l2_norm: int,
    scale: float,
    state_update_capacity: int,
    update_rule: str,
) -> tuple[Array, Array]:
    """Follow the recurrence of LinearAttention for each sequence, in float32.

    Args:
        query: (N, H, D) or (B, T, H, D); without `key` and `value` all three side by side, the
            heads on the last axis as well.
        key: Likewise.
        value: (N, KV, E) or (B, T, KV, E); H divides KV.
        cu_seqlens: 0, and where each sequence ends: (B + 1,); None for sequences of one length.
        decay: (..., KV) or (..., KV, D), logarithms, or what the gate makes them of.
        beta: (..., KV).
        initial_state: (B, KV, E, D), float32; None for zeros.
        a_log: (KV,).
        dt_bias: (KV,), or KV * D elements.
        capture_count: Not read.
        state_update_active: Not read.
        beta_activation: `none` or `sigmoid`.
        chunk_size: A hint for other implementations.
        gate_activation: `none`; `softplus` or `qwen`; `sigmoid` or `kda`.
        gate_lower_bound: Factor of the sigmoid.
        qk_l2_norm: Whether heads of queries and keys are divided by their length.
        scale: Factor of the output; 0 for 1 / sqrt(D).
        state_update_capacity: 0.
        update_rule: `linear`, `gated`, `delta` or `gated_delta`.

    Returns:
        output, of the shape of `value` and the type of `query`; final_state, of the shape of
        `initial_state`, float32.

    Raises:
        KernelError: If the rule or an activation is another, an input that they need is absent,
            shapes do not fit each other, or transitions are captured, which is not implemented.
    """
    refuse_value("state_update_capacity", state_update_capacity, 0)
    if update_rule not in UPDATE_RULES:
        raise KernelError(
            f"`update_rule` is `{update_rule}`, expected one of {', '.join(UPDATE_RULES)}"
        )
    query, key, value = _apart(query, key, value, initial_state)
    lead, (heads, size), (states, width) = query.shape[:-2], query.shape[-2:], value.shape[-2:]
    count = math.prod(lead)
    if key.shape != query.shape or value.shape[:-2] != lead or states % heads:
        raise KernelError(
            f"`query`, `key` and `value` have shapes {query.shape}, {key.shape} and {value.shape}, "
            "expected one for the first two, and heads that divide those of the third"
        )
    bounds = _bounds(lead, cu_seqlens, initial_state)
    state_shape = (len(bounds) - 1, states, width, size)
    state = np.zeros(state_shape, np.float32) if initial_state is None else initial_state
    check_shape("initial_state", state.shape, state_shape, "a state for each sequence")
    with np.errstate(all="ignore"):
        forget = rate = None
        if "gated" in update_rule:
            gates = widened(_needed(decay, "decay", update_rule)).reshape(count, states, -1)
            forget = np.exp(_logarithm(gates, gate_activation, gate_lower_bound, a_log, dt_bias))
        if "delta" in update_rule:
            rate = widened(_needed(beta, "beta", update_rule)).reshape(count, states, 1)
            if beta_activation == "sigmoid":
                rate = 1 / (1 + np.exp(-rate))
            elif beta_activation != "none":
                raise KernelError(
                    f"`beta_activation` is `{beta_activation}`, expected `none` or `sigmoid`"
                )
        q, k = (
            _heads(widened(part).reshape(count, heads, size), states, qk_l2_norm)
            for part in (query, key)
        )
        q = q * np.float32(scale if scale else 1 / math.sqrt(size))
        v = widened(value).reshape(count, states, width)
        output, final = np.empty(v.shape, np.float32), np.empty(state_shape, np.float32)
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            one = slice(first, last)
            read, end, _ = by_each_token(
                _by_head(q[one])[:, :, None],
                _by_head(k[one]),
                _by_head(v[one]),
                state[number : number + 1].swapaxes(-1, -2),
                None if forget is None else _by_head(forget[one]),
                None if rate is None else _by_head(rate[one]),
            )
            output[one] = read[0, :, 0].swapaxes(0, 1)
            final[number] = end[0].swapaxes(-1, -2)
    return narrowed(output.reshape(value.shape), query.dtype), final


def _apart(
    query: Array, key: Array | None, value: Array | None, state: Array | None
) -> tuple[Array, Array, Array]:
    """Return queries, keys and values with an axis of heads."""
    if key is not None and value is not None:
        return query, key, value
    if state is None or key is not None or value is not None:
        raise KernelError("`key` and `value` are absent, which only `initial_state` makes up for")
    _, states, width, size = state.shape
    heads = (query.shape[-1] - states * width) // (2 * size)
    cuts = [heads * size, 2 * heads * size]
    q, k, v = np.split(query, cuts, axis=-1)
    lead = query.shape[:-1]
    return (
        q.reshape(*lead, heads, size),
        k.reshape(*lead, heads, size),
        v.reshape(*lead, states, width),
    )


def _bounds(lead: tuple[int, ...], given: Array | None, state: Array | None) -> list[int]:
    """Return where sequences begin and the last one ends, of tokens that lie behind each other."""
    if given is not None:
        if len(lead) != 1:
            raise KernelError("`cu_seqlens` is given, expected tokens on one axis")
        return sequence_bounds(given, lead[0], "cu_seqlens")
    if len(lead) == 2:
        return [number * lead[1] for number in range(lead[0] + 1)]
    if state is None or len(state) == 0 or lead[0] % len(state):
        raise KernelError("neither `cu_seqlens` nor `initial_state` says where sequences lie")
    return [number * (lead[0] // len(state)) for number in range(len(state) + 1)]


def _needed(given: Array | None, name: str, reason: str) -> Array:
    if given is None:
        raise KernelError(f"`{name}` is missing, but `{reason}` needs it")
    return given


def _logarithm(
    gates: Reals, how: str, least: float, a_log: Array | None, dt_bias: Array | None
) -> Reals:
    """Return the logarithm of what is kept: (N, KV, 1 or D)."""
    if how == "none":
        return gates
    if how not in ("softplus", "qwen", "sigmoid", "kda"):
        raise KernelError(f"`gate_activation` is `{how}`, which is none of the known ones")
    power: Reals = np.exp(_needed(a_log, "a_log", how))[:, None]
    raw: Reals = gates + _needed(dt_bias, "dt_bias", how).reshape(gates.shape[1], -1)
    if how in ("softplus", "qwen"):
        softplus: Reals = np.logaddexp(np.float32(0), raw)
        return -power * softplus
    bounded: Reals = np.float32(least) / (1 + np.exp(-power * raw))
    return bounded


def _heads(rows: Reals, states: int, is_unit: int) -> Reals:
    """Return (N, H, D) as (N, KV, D), each head of length 1 if it shall be."""
    if is_unit:
        rows = rows / np.sqrt(np.square(rows).sum(axis=-1, keepdims=True) + np.float32(1e-12))
    return np.repeat(rows, states // rows.shape[1], axis=1)


def _by_head(rows: Reals) -> Reals:
    """Return (T, KV, ...) as (1, KV, T, ...)."""
    return rows.swapaxes(0, 1)[None]
