"""The cache of GroupQueryAttention: how much of it is valid, and what is written into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.grouped_heads import Heads
from onnx_kvtool.runtime.kernels.contrib.refusal import ELSEWHERE
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = ["Lengths", "read_lengths", "updated"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many rows there are.

    Attributes:
        length: New rows.
        total: total_sequence_length, the rows of scores.
        buffer: Rows of the buffers after the update.
        past: (B,), row at which the new ones begin, in each row of the batch.
        valid: (B,), rows that may be seen after the update.
        first: (B,), position of row 0 of the buffers.
        is_prompt: Whether the new rows are all that there is.
    """

    length: int
    total: int
    buffer: int
    past: npt.NDArray[np.int64]
    valid: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    is_prompt: bool


def read_lengths(
    heads: Heads,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Array,
    *,
    all_kept: bool,
) -> Lengths:
    """Return the lengths after checking that they and the buffers agree.

    Args:
        heads: The new rows.
        past_key: (B, KV, P, D); None for P = 0.
        past_value: Likewise.
        seqlens_k: One less than the valid rows, B elements.
        total_sequence_length: One element.
        all_kept: Whether the buffers hold all positions, which then cannot be more than their rows.

    Raises:
        KernelError: If a past buffer is given alone, is not (B, KV, P, D) or of another type than
            the keys; if the total is neither P + L nor within P; if there is not one length for
            each row of the batch, or one is outside 1 to the total, or below L behind a past or in
            a cache that drops rows; if several rows continue a past in a batch of several, which
            onnxruntime refuses.
    """
    rows = _past_rows(heads, past_key, past_value)
    batch, _, length, _ = heads.query.shape
    if total_sequence_length.size != 1:
        raise KernelError(
            f"`total_sequence_length` has shape {total_sequence_length.shape}, expected one element"
        )
    total = int(total_sequence_length.reshape(-1)[0])
    if total < length or (all_kept and total > rows and total != rows + length):
        expected = f"{length} to {rows}, or {rows + length}" if all_kept else f"{length} or more"
        raise KernelError(
            f"`total_sequence_length` is {total}, expected {expected}: there are {rows} past rows "
            f"and {length} new ones"
        )
    if seqlens_k.size != batch:
        raise KernelError(
            f"`seqlens_k` has shape {seqlens_k.shape}, expected {batch} elements, one for each "
            "row of the batch"
        )
    valid = seqlens_k.reshape(-1).astype(np.int64) + 1
    is_prompt = total == length
    least = 1 if is_prompt and all_kept else length
    for row, count in enumerate(valid.tolist()):
        if not least <= count <= total:
            raise KernelError(
                f"`seqlens_k`[{row}] is {count - 1}, expected {least - 1} to {total - 1}: one less "
                "than the valid rows"
            )
    if batch > 1 and length > 1 and not is_prompt:
        raise KernelError(
            f"`query` has {batch} batch rows and {length} rows behind a past, expected one of one"
        )
    past = np.zeros_like(valid) if is_prompt else valid - length
    return Lengths(length, total, max(total, rows), past, valid, np.zeros_like(valid), is_prompt)


def _past_rows(heads: Heads, past_key: Array | None, past_value: Array | None) -> int:
    if (past_key is None) != (past_value is None):
        given = "past_key" if past_value is None else "past_value"
        raise KernelError(f"`{given}` is given alone, expected both past inputs or neither")
    if past_key is None or past_value is None:
        return 0
    batch, kv_heads, _, size = heads.key.shape
    rows = past_key.shape[2] if past_key.ndim == 4 else 0
    for name, past in (("past_key", past_key), ("past_value", past_value)):
        check_shape(name, past.shape, (batch, kv_heads, rows, size), "(batch, heads, rows, size)")
        if past.dtype != heads.key.dtype:
            raise KernelError(
                f"`{name}` is of dtype {past.dtype}, expected {heads.key.dtype} as the keys: "
                "quantized caches are not implemented",
                help=ELSEWHERE,
            )
    return rows


def updated(past: Array | None, new: Array, lengths: Lengths) -> Array:
    """Return a buffer with the past rows, the new ones behind them, and zeros behind those.

    Args:
        past: (B, KV, P, D); None for no rows.
        new: (B, KV, L, D).
        lengths: Where the new rows begin.
    """
    batch, heads, length, size = new.shape
    present = np.zeros((batch, heads, lengths.buffer, size), new.dtype)
    for row, start in enumerate(lengths.past.tolist()):
        if past is not None:
            present[row, :, :start] = past[row, :, :start]
        present[row, :, start : start + length] = new[row]
    return present
