"""GroupQueryAttention of onnxruntime."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.grouped import (
    Heads,
    Lengths,
    Softmax,
    attended,
    read_lengths,
    read_window,
    refuse_input,
    refuse_value,
    rotated,
    split_heads,
    updated,
)
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape


def _check_bias(bias: Array, shape: tuple[int, int, int, int]) -> None:
    """Check the shape of a bias; only batch and heads are broadcast.

    Raises:
        KernelError: If it has another shape, the first two dimensions being 1 or not.
    """
    if bias.ndim != 4 or any(
        got != want and not (axis < 2 and got == 1)
        for axis, (got, want) in enumerate(zip(bias.shape, shape, strict=True))
    ):
        raise KernelError(
            f"`attention_bias` has shape {bias.shape}, expected {shape}, the first two perhaps 1: "
            "(batch, heads, query rows, all key rows)"
        )


def group_query_attention(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    query_seqlens: Array | None = None,
    *,
    causal: int,
    do_rotary: int | None,
    k_norm_epsilon: float | None,
    k_quant_type: str,
    kv_cache_bit_width: int | None,
    kv_num_heads: int,
    local_window_size: int,
    num_heads: int,
    q_norm_epsilon: float | None,
    qk_norm_epsilon: float,
    qk_output: int,
    rotary_interleaved: int | None,
    scale: float | None,
    sliding_window_cache: int,
    smooth_softmax: int,
    softcap: float | None,
    v_quant_type: str,
    context: Context | None = None,
) -> tuple[Array | None, ...]:
    """Attend to the keys of a cache after writing the new ones into it.

    Semantics are those of docs/ContribOperators.md, and where it is silent those that onnxruntime
    1.31.1 shows on a CPU. Letters: B batch, H query heads, KV key/value heads, L new rows, D head
    size, P rows of the past buffers, T_b valid rows of batch row b after the update.

    A prompt, which is a call with L = total_sequence_length, starts at row 0 and reads no past;
    batch rows may be shorter than L; then nobody sees their keys from T_b on, which are written.
    Their queries from T_b on are computed as the others are; with a window, onnxruntime is not
    consistent about them. Any other call writes its L rows behind the first T_b - L of the past.

    Hidden keys do not enter the computation: NaN in a hidden key has no effect. A query that sees
    no key has an output of 0. All T_b values are multiplied, so that NaN in one of them reaches
    every query of the row.

    16-bit types are computed in float32; the rotated query and key are rounded, and the output.

    Args:
        query: (B, L, H * D); or (B, L, (H + 2 * KV) * D) with keys and values behind, if `key` and
            `value` are absent.
        key: (B, L, KV * D).
        value: (B, L, KV * D).
        past_key: (B, KV, P, D); P may be 0. Absent for P = 0.
        past_value: Likewise.
        seqlens_k: T_b - 1: B elements.
        total_sequence_length: One element, at least the greatest T_b: P + L, or up to P.
        cos_cache: (M, R / 2) with an even R up to D, which rotates the first R elements of a head.
        sin_cache: Likewise.
        position_ids: (B, L), for the rotation; in a prompt the first element is that of row 0 in
            all of the batch, and the others are not looked at. Absent for the rows of the cache.
        attention_bias: (B or 1, H or 1, L, total_sequence_length), added after the softcap.
        head_sink: (H,), one more score for each head, without a value.
        k_scale: Refused, as are all parts of quantized caches.
        v_scale: Refused.
        q_norm_weight: Refused: onnxruntime normalizes heads on GPUs only.
        k_norm_weight: Refused.
        query_seqlens: Refused: the lengths of padded chunks, which onnxruntime takes since 1.32.
        causal: Whether later keys are hidden.
        do_rotary: Whether query and key are rotated; None for no.
        k_norm_epsilon: Has no meaning without `k_norm_weight`.
        k_quant_type: `NONE`.
        kv_cache_bit_width: None or 0.
        kv_num_heads: KV; divides H.
        local_window_size: Keys that a query sees up to its own; -1 for all; only if causal.
        num_heads: H.
        q_norm_epsilon: Has no meaning without `q_norm_weight`.
        qk_norm_epsilon: Has no meaning without `q_norm_weight`.
        qk_output: The fourth output: 1 for the scores before the softmax, 2 for those after it.
        rotary_interleaved: Whether neighbours are rotated, not halves; None for no.
        scale: Factor of the scores; None and 0 for 1 / sqrt(D).
        sliding_window_cache: 1 for past buffers that hold no more than the window and some slack,
            where P is at least the window; see `Window`. The present ones are as long, and
            total_sequence_length may be any; there is no `output_qk`.
        smooth_softmax: 1 for one more score of 0, unless there is `head_sink`.
        softcap: Scores become softcap * tanh(score / softcap); None, 0 and less for none.
        v_quant_type: `NONE`.
        context: Tells whether the node has a fourth output.

    Returns:
        output, (B, L, H * D); present_key and present_value, (B, KV, max(P, T), D) with T for
        total_sequence_length, 0 behind the rows written; and output_qk, (B, H, L, T), 0 where a key
        is hidden, None without `qk_output`. A present buffer that is the past one keeps what stood
        behind those rows; as nobody may see them, this returns a new one.

    Raises:
        KernelError: For shapes and lengths that contradict each other, and what is refused.
    """
    refuse_input("k_scale", k_scale)
    refuse_input("v_scale", v_scale)
    refuse_input("q_norm_weight", q_norm_weight)
    refuse_input("k_norm_weight", k_norm_weight)
    refuse_input("query_seqlens", query_seqlens)
    refuse_value("k_quant_type", k_quant_type, "NONE")
    refuse_value("v_quant_type", v_quant_type, "NONE")
    refuse_value("kv_cache_bit_width", kv_cache_bit_width, None, 0)
    refuse_value("sliding_window_cache", sliding_window_cache, 0, 1)
    refuse_value("causal", causal, 0, 1)
    refuse_value("qk_output", qk_output, 0, 1, 2)
    if local_window_size != -1 and (local_window_size < 1 or not causal):
        raise KernelError(
            f"`local_window_size` is {local_window_size}, expected -1"
            + (", or 1 or more" if causal else " as `causal` is 0")
        )
    if qk_output == 0 and context is not None and context.outputs > 3:
        raise KernelError("the node has an output `output_qk`, but `qk_output` is 0")
    heads = split_heads(query, key, value, num_heads, kv_num_heads)
    seen = local_window_size if local_window_size > 0 else None
    window = read_window(past_key, seen, qk_output) if sliding_window_cache else None
    lengths = read_lengths(
        heads, past_key, past_value, seqlens_k, total_sequence_length, all_kept=window is None
    )
    if do_rotary == 1:
        places = _positions(heads, lengths, cos_cache, position_ids)
        heads = rotated(heads, places, cos_cache, sin_cache, rotary_interleaved)
    rows = lengths if window is None else window.located(lengths)
    keys = updated(past_key, heads.key, rows)
    values = updated(past_value, heads.value, rows)
    batch, _, length, size = heads.query.shape
    if attention_bias is not None:
        _check_bias(attention_bias, (batch, num_heads, length, lengths.total))
    if head_sink is not None:
        check_shape("head_sink", head_sink.shape, (num_heads,), "one for each head of `query`")
    elif smooth_softmax == 1:
        head_sink = np.zeros(num_heads, np.float32)
    softmax = Softmax(
        scale=scale or 1.0 / math.sqrt(size),
        softcap=softcap if softcap is not None and softcap > 0 else None,
        is_causal=bool(causal),
        window=seen,
        sink=head_sink,
    )
    output, shown = attended(heads.query, keys, values, rows, attention_bias, softmax, qk_output)
    if window is not None:
        keys, values = window.evicted(keys, rows), window.evicted(values, rows)
    flat = output.transpose(0, 2, 1, 3).reshape(batch, length, num_heads * size)
    return flat, keys, values, shown


def _positions(
    heads: Heads, lengths: Lengths, cos_cache: Array | None, position_ids: Array | None
) -> Array:
    """Return the position of each new row, for its rotation: (B, L)."""
    batch, _, length, _ = heads.query.shape
    if cos_cache is not None and len(cos_cache) < lengths.total:
        raise KernelError(
            f"`cos_cache` has {len(cos_cache)} rows, expected at least {lengths.total}, the "
            "`total_sequence_length`"
        )
    rows = np.arange(length)
    if position_ids is None:
        return np.asarray(lengths.past[:, None] + rows)
    check_shape("position_ids", position_ids.shape, (batch, length), "(batch, new rows)")
    if not lengths.is_prompt:
        return position_ids
    first = int(position_ids[0, 0]) if position_ids.size else 0
    return np.broadcast_to(first + rows, (batch, length))
