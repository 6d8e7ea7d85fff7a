"""LinearAttention of `com.microsoft`, beside that of ONNX: any number of heads of keys."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.states import linear_attention_27
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["linear_attention"]


def linear_attention(
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
    state_window: int,
    update_rule: str,
) -> tuple[Array, Array]:
    """Update a state by each token in turn and read it with the query, as that of ONNX does.

    Keys may have fewer heads than values, and queries fewer than keys and values: each is taken for
    so many heads in a row. A gate that is not part of the rule is not read.

    Args:
        query: (B, T, H * D).
        key: (B, T, NK * D); NK divides KV.
        value: (B, T, KV * E).
        past_state: (B, KV, D, E); None for zeros.
        decay: (B, T, KV) or (B, T, KV * D), logarithms.
        beta: (B, T, KV) or (B, T, 1).
        chunk_size: A hint for other implementations.
        kv_num_heads: KV, which divides H or is a multiple of it.
        q_num_heads: H.
        scale: Factor of the output; 0 for 1 / sqrt(D).
        state_window: 0.
        update_rule: `linear`, `gated`, `delta` or `gated_delta`.

    Returns:
        output, (B, T, max(H, KV) * E), and present_state: see `linear_attention_27`.

    Raises:
        KernelError: Likewise; or for a window of states, which onnxruntime has on GPUs alone.
    """
    refuse_value("state_window", state_window, 0)
    if q_num_heads < 1 or kv_num_heads < 1 or query.ndim != 3 or query.shape[2] < q_num_heads:
        raise KernelError(
            f"`query` has shape {query.shape}, `q_num_heads` is {q_num_heads} and `kv_num_heads` "
            f"{kv_num_heads}, expected (B, T, q_num_heads * D)"
        )
    size = query.shape[2] // q_num_heads
    keyed = key.shape[-1] // size
    if keyed < 1 or kv_num_heads % keyed or max(q_num_heads, kv_num_heads) % q_num_heads:
        raise KernelError(
            f"`query` has {q_num_heads} heads, `key` {keyed} and `value` {kv_num_heads}, which do "
            "not divide each other"
        )
    heads = max(q_num_heads, kv_num_heads)
    return linear_attention_27(
        _repeated(query, size, heads // q_num_heads),
        _repeated(key, size, kv_num_heads // keyed),
        value,
        past_state,
        decay if "gated" in update_rule else None,
        beta if "delta" in update_rule else None,
        chunk_size=chunk_size,
        kv_num_heads=kv_num_heads,
        q_num_heads=heads,
        scale=scale or 1 / math.sqrt(size),
        update_rule=update_rule,
    )


def _repeated(rows: Array, size: int, times: int) -> Array:
    """Return (B, T, heads * D) with each head so many times in a row."""
    apart = rows.reshape(*rows.shape[:2], -1, size)
    return np.repeat(apart, times, axis=2).reshape(*rows.shape[:2], -1)
