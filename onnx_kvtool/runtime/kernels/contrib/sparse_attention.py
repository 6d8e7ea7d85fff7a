"""SparseAttention of `com.microsoft`: attention to the blocks of keys that lists name."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.grouped_heads import rotated, split_heads
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = ["sparse_attention"]


def sparse_attention(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array,
    past_value: Array,
    block_row_indices: Array,
    block_col_indices: Array,
    total_sequence_length: Array,
    key_total_sequence_lengths: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    *,
    do_rotary: int | None,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved: int | None,
    scale: float | None,
    sparse_block_size: int,
) -> tuple[Array, Array, Array]:
    """Attend to the keys of a buffer that stand up to a query, in the blocks that it may see.

    Semantics are those of docs/ContribOperators.md, and of onnxruntime 1.32.0 on a CPU. Everything
    is computed in float32 and rounded once.

    Args:
        query: (B, L, H * D), or (B, L, (H + 2 * KV) * D) without `key` and `value`.
        key: (B, L, KV * D).
        value: (B, L, KV * D).
        past_key: (B, KV, S, D), into which the new rows are written.
        past_value: Likewise.
        block_row_indices: (layouts, blocks + 1), where the blocks of each row of blocks begin.
        block_col_indices: (layouts, entries), the blocks that it sees; a query sees none of them
            behind its own position. Head h has layout h modulo their number.
        total_sequence_length: One element; L in a prompt, which is written from row 0 on.
        key_total_sequence_lengths: (B,), valid rows after the call, of which the last L are new.
        cos_cache: (M, R / 2).
        sin_cache: (M, R / 2).
        do_rotary: Whether queries and keys are rotated by the angle of their position.
        kv_num_heads: KV.
        num_heads: H.
        rotary_interleaved: Whether neighbours are rotated, not halves.
        scale: Factor of the scores; None and 0 for 1 / sqrt(D).
        sparse_block_size: Positions of a block.

    Returns:
        (B, L, H * D), and the two buffers. Queries behind the valid rows of their sequence see
        what is in their blocks.

    Raises:
        KernelError: If shapes do not fit, or a query sees no key.
    """
    heads = split_heads(query, key, value, num_heads, kv_num_heads)
    batch, _, length, size = heads.query.shape
    check_shape(
        "key_total_sequence_lengths", key_total_sequence_lengths.shape, (batch,), "one each"
    )
    valid = key_total_sequence_lengths.astype(np.int64)
    is_prompt = int(total_sequence_length.reshape(-1)[0]) == length
    places = np.arange(length) + (np.zeros_like(valid) if is_prompt else valid - length)[:, None]
    if do_rotary == 1:
        heads = rotated(heads, places, cos_cache, sin_cache, rotary_interleaved)
    present_key, present_value = past_key.copy(), past_value.copy()
    for index in range(batch):
        present_key[index][:, places[index]] = heads.key[index]
        present_value[index][:, places[index]] = heads.value[index]
    shown = _shown(block_row_indices, block_col_indices, sparse_block_size)
    factor = np.float32(scale or size**-0.5)
    output = np.zeros((batch, length, num_heads, size), np.float32)
    for index, head in np.ndindex(batch, num_heads):
        group = head * kv_num_heads // num_heads
        last = min(present_key.shape[2], shown.shape[1])
        seen = shown[head % len(shown)][places[index], :last]
        seen = seen & (np.arange(last) <= places[index][:, None])
        keys = widened(present_key[index, group, :last])
        scores = widened(heads.query[index, head]) @ keys.T * factor
        output[index, :, head] = _softmax(scores, seen) @ widened(
            present_value[index, group, :last]
        )
    joined = output.reshape(batch, length, num_heads * size)
    return narrowed(joined, query.dtype), present_key, present_value


def _shown(starts: Array, columns: Array, size: int) -> Array:
    """Return which positions see which, by blocks: (layouts, positions, positions)."""
    blocks = starts.shape[1] - 1
    table = np.zeros((len(starts), blocks, blocks), bool)
    for layout, row in np.ndindex(len(starts), blocks):
        table[layout, row, columns[layout, starts[layout, row] : starts[layout, row + 1]]] = True
    return table.repeat(size, axis=1).repeat(size, axis=2)


def _softmax(scores: Reals, seen: Array) -> Reals:
    if not seen.any(axis=-1).all():
        raise KernelError("a query sees no key")
    powers = np.exp(
        np.where(seen, scores, -np.inf)
        - scores.max(axis=-1, keepdims=True, where=seen.astype(bool), initial=-np.inf)
    )
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
