"""The parts of GroupQueryAttention: heads, cache, windows, softmax."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.attention import rotary_embedding_23
from onnx_kvtool.runtime.kernels.attention.bias_and_weights import (
    Operands,
    attention_weights,
    capped,
    raw_scores,
    weighted_values,
)
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Bools
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

# What is not implemented.


ELSEWHERE = "run the model with `--runtime onnxruntime`"
"""The help of a refusal."""


def refuse_input(name: str, value: object) -> None:
    """Refuse an input that is not implemented.

    Raises:
        KernelError: If it is given.
    """
    if value is not None:
        raise KernelError(f"`{name}` is given, which is not implemented", help=ELSEWHERE)


def refuse_value(name: str, value: object, *implemented: object) -> None:
    """Refuse a value of an attribute that is not implemented.

    Raises:
        KernelError: If it is none of them.
    """
    if value not in implemented:
        known = " or ".join(f"`{one}`" for one in implemented if one is not None)
        raise KernelError(
            f"`{name}` is `{value}`, expected {known}: nothing else is implemented", help=ELSEWHERE
        )


# The heads of GroupQueryAttention.


class Heads(NamedTuple):
    """New rows, head by head.

    Attributes:
        query: (B, H, L, D).
        key: (B, KV, L, D).
        value: (B, KV, L, D).
    """

    query: Array
    key: Array
    value: Array


def split_heads(
    query: Array, key: Array | None, value: Array | None, heads: int, kv_heads: int
) -> Heads:
    """Return the heads as views.

    Without `key` and `value`, `query` is (B, L, (H + 2 * KV) * D), with them behind.

    Raises:
        KernelError: If KV does not divide H, a width is no multiple of its heads, a shape does not
            fit that of `query`, only one of `key` and `value` is given, or there are no rows.
    """
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise KernelError(
            f"`num_heads` is {heads} and `kv_num_heads` is {kv_heads}, expected a multiple of it"
        )
    if query.ndim != 3:
        raise KernelError(f"`query` has shape {query.shape}, expected three dimensions")
    if (key is None) != (value is None):
        given = "key" if value is None else "value"
        raise KernelError(f"`{given}` is given alone, expected both `key` and `value` or neither")
    batch, length, width = query.shape
    if length == 0:
        raise KernelError(f"`query` has shape {query.shape}, expected one row or more")
    parts = heads if key is not None else heads + 2 * kv_heads
    if width == 0 or width % parts:
        raise KernelError(
            f"the last dimension of `query` with shape {query.shape} is {width}, expected a "
            f"multiple of {parts}, its heads"
        )
    size = width // parts
    if key is None or value is None:
        split = query.reshape(batch, length, parts, size).transpose(0, 2, 1, 3)
        return Heads(
            split[:, :heads], split[:, heads : heads + kv_heads], split[:, heads + kv_heads :]
        )
    for name, given_rows in (("key", key), ("value", value)):
        expected = (batch, length, kv_heads * size)
        check_shape(name, given_rows.shape, expected, "batch, rows and head size of `query`")
    return Heads(
        *(
            rows.reshape(batch, length, count, size).transpose(0, 2, 1, 3)
            for rows, count in ((query, heads), (key, kv_heads), (value, kv_heads))
        )
    )


def rotated(
    heads: Heads,
    positions: Array,
    cos_cache: Array | None,
    sin_cache: Array | None,
    interleaved: int | None,
) -> Heads:
    """Return the heads with the first R elements of query and key rotated.

    `positions` is (B, L), and both caches are (M, R / 2). If `interleaved`, neighbours are rotated,
    not halves.

    Raises:
        KernelError: If a cache is absent, or as for `rotary_embedding_23`.
    """
    if cos_cache is None or sin_cache is None:
        raise KernelError("`do_rotary` is 1, but `cos_cache` or `sin_cache` is absent")
    if cos_cache.ndim != 2:
        raise KernelError(f"`cos_cache` has shape {cos_cache.shape}, expected two dimensions")
    query, key = (
        rotary_embedding_23(
            x,
            cos_cache,
            sin_cache,
            positions,
            interleaved=int(interleaved == 1),
            num_heads=None,
            rotary_embedding_dim=2 * cos_cache.shape[1],
        )
        for x in (heads.query, heads.key)
    )
    return Heads(query, key, heads.value)


# The cache of GroupQueryAttention: how much of it is valid, and what is written into it.


class Lengths(NamedTuple):
    """The numbers of rows of a call.

    Attributes:
        length: New rows.
        total: total_sequence_length, the rows of scores.
        buffer: Rows of the buffers after the update.
        past: (B,), first of the new rows, in each row of the batch.
        valid: (B,), rows that may be seen after the update.
        first: (B,), position of row 0 of the buffers.
        is_prompt: Whether there is no past.
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

    If `all_kept`, the buffers hold all positions, so that there are no more of these than rows.

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
    """Return a buffer with the past rows, then the new ones, then zeros."""
    batch, heads, length, size = new.shape
    present = np.zeros((batch, heads, lengths.buffer, size), new.dtype)
    for row, start in enumerate(lengths.past.tolist()):
        if past is not None:
            present[row, :, :start] = past[row, :, :start]
        present[row, :, start : start + length] = new[row]
    return present


# The cache of GroupQueryAttention with a window, which drops older rows.
#
# docs/ContribOperators.md gives the layout: rows 0 to L - 1 of a buffer hold the last L positions
# in order, of T so far. L is T as long as that is within the capacity C of the buffer; beyond it,
# G = C - W + 1 positions leave at once, as often as needed, so that the window W stays.


class Window(NamedTuple):
    """A cache that drops the rows before its window.

    Attributes:
        capacity: Rows of the past and the present buffers.
        size: Keys that a query sees up to its own.
    """

    capacity: int
    size: int

    def resident(self, positions: int) -> int:
        """Return the number of rows that are kept after so many positions."""
        beyond = positions - self.capacity
        leaving = self.capacity - self.size + 1
        return positions - leaving * max(0, -(-beyond // leaving))

    def located(self, lengths: Lengths) -> Lengths:
        """Return the lengths with rows counted among the kept and the new ones."""
        kept = np.array([self.resident(past) for past in lengths.past.tolist()], np.int64)
        new = lengths.valid - lengths.past
        return lengths._replace(
            buffer=int(kept.max(initial=0)) + lengths.length,
            past=kept,
            valid=kept + new,
            first=lengths.past - kept,
        )

    def evicted(self, rows: Array, located: Lengths) -> Array:
        """Return a buffer of the capacity with the kept rows, and zeros behind them."""
        batch, heads, _, size = rows.shape
        present = np.zeros((batch, heads, self.capacity, size), rows.dtype)
        for row, (valid, first) in enumerate(
            zip(located.valid.tolist(), located.first.tolist(), strict=True)
        ):
            kept = self.resident(first + valid)
            present[row, :, :kept] = rows[row, :, valid - kept : valid]
        return present


def read_window(past_key: Array | None, window: int | None, qk_output: int) -> Window:
    """Return the window cache of a node whose `sliding_window_cache` is 1.

    Raises:
        KernelError: If there is no past, no window or no room for it in the past; if scores are
            asked for, whose columns nobody defines.
    """
    if past_key is None or past_key.ndim != 4:
        raise KernelError("`sliding_window_cache` is 1, but there are no past buffers")
    if window is None:
        raise KernelError("`sliding_window_cache` is 1, but there is no `local_window_size`")
    if past_key.shape[2] < window:
        raise KernelError(
            f"`past_key` has {past_key.shape[2]} rows, expected at least {window}, the "
            "`local_window_size`"
        )
    if qk_output:
        raise KernelError(f"`qk_output` is {qk_output}, expected 0 as `sliding_window_cache` is 1")
    return Window(past_key.shape[2], window)


# The arithmetic of GroupQueryAttention.


class Softmax(NamedTuple):
    """The parameters of the softmax.

    Attributes:
        scale: Factor of the scores.
        softcap: Limit of the scores; None for none.
        is_causal: Whether a query sees no later key.
        window: Number of keys that a query sees, up to its own; None for all.
        sink: (H,), a further score without a value; None for none.
    """

    scale: float
    softcap: float | None
    is_causal: bool
    window: int | None
    sink: Array | None


def attended(
    query: Array,
    keys: Array,
    values: Array,
    lengths: Lengths,
    bias: Array | None,
    softmax: Softmax,
    qk_output: int,
) -> tuple[Array, Array | None]:
    """Return the weighted values, and the scores that `qk_output` asks for.

    `qk_output` is 0 for no scores, 1 for those before the softmax, 2 for those after it. The
    scores are (B, H, L, total), with 0 for hidden keys.
    """
    batch, heads, length, _ = query.shape
    kind = widened(query[:0]).dtype
    output = np.zeros(query.shape, query.dtype)
    shown = np.zeros((batch, heads, length, lengths.total), query.dtype) if qk_output else None
    for row in range(batch):
        valid, past, first = (
            int(each[row]) for each in (lengths.valid, lengths.past, lengths.first)
        )
        only = slice(row, row + 1)
        seen_keys, seen_values = (widened(x[only, :, :valid]) for x in (keys, values))
        operands = Operands(widened(query[only]), seen_keys, seen_values, None, False)
        scores = capped(raw_scores(operands, softmax.scale), softmax.softcap or 0.0, kind)
        if bias is not None:
            scores = scores + widened(bias[row % bias.shape[0], :, :, first : first + valid])
        seen = _seen(length, past, valid, softmax)
        hidden = np.where(seen, scores, kind.type(-np.inf))
        if softmax.sink is not None:
            column = softmax.sink.astype(kind)[:, None, None]
            sinks = np.broadcast_to(column, (1, heads, length, 1))
            hidden = np.concatenate([hidden, sinks], axis=-1)
        # The weights of a row that sees no key are 0.
        empty = np.asarray(np.equal(hidden, -np.inf).all(axis=-1, keepdims=True))
        weights = attention_weights(hidden, empty, kind, kind)[..., :valid]
        if shown is not None:
            asked = weights if qk_output == 2 else np.where(seen, scores, 0)
            shown[row, :, :, :valid] = narrowed(asked[0], query.dtype)
        output[row] = narrowed(weighted_values(weights, operands, None)[0], query.dtype)
    return output, shown


def _seen(length: int, past: int, valid: int, softmax: Softmax) -> Bools:
    """Return whether a query sees a key: (L, valid)."""
    keys, rows = np.arange(valid), past + np.arange(length)[:, None]
    seen = np.ones((length, valid), np.bool_)
    if softmax.is_causal:
        seen &= keys <= rows
    if softmax.window is not None:
        seen &= keys > rows - softmax.window
    return seen
