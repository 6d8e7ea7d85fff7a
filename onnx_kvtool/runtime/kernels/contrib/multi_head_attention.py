"""MultiHeadAttention of `com.microsoft`, and its form for one new row."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.dot_product import Hiding, dot_product
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_input, refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = ["decoder_masked_multi_head_attention", "multi_head_attention"]


def multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    mask_filter_value: float | None,
    num_heads: int,
    scale: float | None,
    unidirectional: int,
    context: Context | None = None,
) -> tuple[Array, ...]:
    """Attend to keys, those of a past before the new ones, as onnxruntime 1.31.1 does on a CPU.

    Letters: B batch, H heads, L query rows, S new key rows, P past rows, T all of them, D head
    size, E value head size. 16-bit types are computed in float32; the keys and values with their
    bias are rounded, and the output.

    Args:
        query: (B, L, H * D).
        key: (B, S, H * D); or (B, H, S, D), of another attention, which has no bias and no past.
            None with a query (B, L, H, 3, D) that holds all; or (B, S, H, 2, D) with the values.
        value: (B, S, H * E); or (B, H, S, D).
        bias: (H * D + H * D + H * E,), added to query, key and value.
        key_padding_mask: (B,), (B, T) or (B, L, T); see `padding_bias`.
        attention_bias: (B or 1, H or 1, L, T), added to the scores.
        past_key: (B, H, P, D).
        past_value: (B, H, P, E).
        past_sequence_length: One element, how many rows of the past buffers are valid; the new ones
            are written behind them, within P. Absent where all are.
        cache_indirection: Refused: it belongs to beam search on GPUs.
        mask_filter_value: Added where a key is padding; None for -10000.
        num_heads: H.
        scale: Factor of the scores; None and 0 for 1 / sqrt(D).
        unidirectional: Whether later keys are hidden, for S = L.
        context: Tells which outputs the node has. The fourth, the scores, is refused: the
            documentation does not say of which stage. A past without present outputs is refused:
            onnxruntime ignores it then.

    Returns:
        output, (B, L, H * E); present_key and present_value, (B, H, T, D) and (B, H, T, E), or the
        past buffers with the new rows, if they have a length.

    Raises:
        KernelError: For shapes that contradict each other, and what is refused.
    """
    refuse_input("cache_indirection", cache_indirection)
    if context is not None and context.outputs > 3:
        raise KernelError("the node has an output `qk`, which is not implemented")
    if past_key is not None and context is not None and context.outputs < 3:
        raise KernelError("`past_key` is given, but the node has no outputs for the present")
    if query.ndim == 5 or (key is not None and key.ndim == 5):
        query, key, value = _unpacked(query, key, bias is None and past_key is None)
    if query.ndim != 3 or key is None or value is None:
        raise KernelError(
            f"`query` has shape {query.shape}, expected three dimensions, and `key` and `value`"
        )
    parts = _split(query, key, value, num_heads, bias)
    keys, start = _joined("past_key", past_key, parts[1], past_sequence_length)
    values, _ = _joined("past_value", past_value, parts[2], past_sequence_length)
    end = start + parts[1].shape[2]
    length = query.shape[1]
    if unidirectional == 1 and parts[1].shape[2] != length and length > 1:
        raise KernelError(
            f"`unidirectional` is 1, but there are {length} query rows and {parts[1].shape[2]} "
            "key rows, expected as many"
        )
    output = dot_product(
        widened(parts[0]),
        widened(keys[:, :, :end]),
        widened(values[:, :, :end]),
        Hiding(
            ("key_padding_mask", key_padding_mask),
            mask_filter_value,
            attention_bias,
            unidirectional == 1 and length > 1,
        ),
        scale,
        query.dtype,
    )
    return output, keys, values


def _unpacked(query: Array, key: Array | None, is_plain: bool) -> tuple[Array, Array, Array]:
    """Return query, key and value, (B, rows, H * D), of a query or keys that hold others.

    onnxruntime takes such on GPUs alone, and no bias and no past with them.
    """
    packed = query if key is None else key
    count = 3 if key is None else 2
    if not is_plain or packed.ndim != 5 or packed.shape[3] != count:
        raise KernelError(
            f"packed rows have shape {packed.shape}, expected {count} at axis 3, and neither bias "
            "nor past"
        )
    batch, rows, heads, _, size = packed.shape
    parts = [packed[:, :, :, i].reshape(batch, rows, heads * size) for i in range(count)]
    return (parts[0], parts[1], parts[2]) if key is None else (query, parts[0], parts[1])


def decoder_masked_multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    mask_index: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    bias: Array | None = None,
    *,
    mask_filter_value: float | None,
    num_heads: int,
    output_qk: int | None,
    past_present_share_buffer: int | None,
    scale: float | None,
    context: Context | None = None,
) -> tuple[Array, ...]:
    """Attend with one new row, as `multi_head_attention` does.

    Args:
        query: (B, 1, H * D); with key and value inside it is refused.
        key: (B, 1, H * D), or for a cross attention (B, H, S, D).
        value: Likewise.
        mask_index: (B, T).
        attention_bias: (B or 1, H or 1, 1, T).
        past_key: (B, H, P, D), a buffer.
        past_value: Likewise.
        past_sequence_length: Rows of the buffer that are valid; not looked at without one.
        beam_width: Refused.
        cache_indirection: Refused.
        bias: (3 * H * D,).
        mask_filter_value: As in `multi_head_attention`.
        num_heads: H.
        output_qk: None or 0.
        past_present_share_buffer: 1, if there is a past.
        scale: Factor of the scores.
        context: Tells which outputs the node has.

    Raises:
        KernelError: As `multi_head_attention`, and for a buffer that is not shared.
    """
    refuse_input("beam_width", beam_width)
    refuse_value("output_qk", output_qk, None, 0)
    if query.ndim != 3 or query.shape[1] != 1:
        raise KernelError(f"`query` has shape {query.shape}, expected one row")
    if past_key is not None:
        refuse_value("past_present_share_buffer", past_present_share_buffer, 1)
        if past_sequence_length is None:
            raise KernelError("`past_key` is given without `past_sequence_length`")
    return multi_head_attention(
        query,
        key,
        value,
        bias,
        mask_index,
        attention_bias,
        past_key,
        past_value,
        past_sequence_length if past_key is not None else None,
        cache_indirection,
        mask_filter_value=mask_filter_value,
        num_heads=num_heads,
        scale=scale,
        unidirectional=0,
        context=context,
    )


def _split(
    query: Array, key: Array, value: Array, heads: int, bias: Array | None
) -> tuple[Array, Array, Array]:
    """Return query, key and value with their bias: (B, H, rows, size)."""
    batch, _, width = query.shape
    if heads < 1 or width == 0 or width % heads:
        raise KernelError(f"`num_heads` is {heads}, expected a divisor of {width}, as in `query`")
    if key.ndim == 4:
        expected = (batch, heads, key.shape[2], width // heads)
        check_shape("key", key.shape, expected, "batch, heads and head size of `query`")
        check_shape("value", value.shape, expected, "the shape of `key`")
        value_width = width
    else:
        rows = key.shape[1] if key.ndim == 3 else 0
        check_shape("key", key.shape, (batch, rows, width), "batch and width of `query`")
        value_width = value.shape[-1] if value.ndim else 0
        check_shape("value", value.shape, (batch, rows, value_width), "batch and rows of `key`")
        if value_width == 0 or value_width % heads:
            raise KernelError(
                f"`num_heads` is {heads}, expected a divisor of {value_width}, as in `value`"
            )
    widths = (width, width, value_width)
    if bias is not None:
        check_shape("bias", bias.shape, (sum(widths),), "widths of `query`, `key` and `value`")
    offsets = (0, width, 2 * width)
    query, key, value = (
        _heads_of(part, None if bias is None else bias[begin : begin + size], heads)
        for part, begin, size in zip((query, key, value), offsets, widths, strict=True)
    )
    return query, key, value


def _heads_of(rows: Array, bias: Array | None, heads: int) -> Array:
    """Return rows with their bias, (B, H, rows, size); those of four dimensions as they are."""
    if rows.ndim == 4:
        return rows
    if bias is not None:
        rows = narrowed(np.asarray(widened(rows) + widened(bias)), rows.dtype)
    batch, count, width = rows.shape
    return rows.reshape(batch, count, heads, width // heads).transpose(0, 2, 1, 3)


def _joined(
    name: str, past: Array | None, new: Array, valid_rows: Array | None
) -> tuple[Array, int]:
    """Return the buffer with the new rows, and how many rows stand before them."""
    batch, heads, rows, size = new.shape
    if past is None:
        if valid_rows is not None:
            raise KernelError(f"`past_sequence_length` is given without `{name}`")
        return new, 0
    buffer = past.shape[2] if past.ndim == 4 else 0
    check_shape(name, past.shape, (batch, heads, buffer, size), "batch, heads and head size")
    if valid_rows is None:
        return np.concatenate([past, new], axis=2), buffer
    if valid_rows.size != 1:
        raise KernelError(
            f"`past_sequence_length` has shape {valid_rows.shape}, expected one element"
        )
    start = int(valid_rows.reshape(-1)[0])
    if not 0 <= start <= buffer - rows:
        raise KernelError(
            f"`past_sequence_length` is {start}, expected 0 to {buffer - rows}: `{name}` has "
            f"{buffer} rows, and {rows} are new"
        )
    present = past.copy()
    present[:, :, start : start + rows] = new
    return present, start
