"""Attention-23, -24 and -25 over a cache, and RotaryEmbedding."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.bias_and_weights import (
    Operands,
    additive_bias,
    attention_weights,
    capped,
    check_nonpad,
    mask_23,
    mask_24,
    raw_scores,
    read_operands,
    weighted_values,
    without_padding,
)
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Ints, Lines
from onnx_kvtool.runtime.kernels.normalization.layer import (
    Reals,
    check_shape,
    floating_type,
    rounded,
)


def attention_23(
    Q: Array,
    K: Array,
    V: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int,
    kv_num_heads: int | None,
    q_num_heads: int | None,
    qk_matmul_output_mode: int,
    scale: float | None,
    softcap: float,
    softmax_precision: int | None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    context: Context | None = None,
) -> tuple[Array | None, ...]:
    """Compute Attention-23, -24 and -25 (the windows) as the text of onnx 1.23.2 has them.

    Letters: B batch, H query heads, KV key/value heads, L query length, P past length, S total key
    length (past and new), D head size, E value head size.

    Types: float32 and float64 are computed in themselves, the whole scale multiplied to the query
    alone. float16 and bfloat16 are rounded where the schema's function body has a value: the scaled
    query and keys, the scores, each step of the softcap, the sum with the bias, the softmax (in
    `softmax_precision`), its cast, and the output; sums in between are float32.

    NaN: the bias is added, so that a score of NaN, or of plus infinity at a hidden key, makes its
    row NaN; a query that sees no key at all has an output of 0 whatever scores and values are.

    Args:
        Q: (B, H, L, D), or (B, L, H * D).
        K: (B, KV, S - P, D), or (B, S - P, KV * D); KV divides H.
        V: (B, KV, S - P, E), or (B, S - P, KV * E); may be of another float type.
        attn_mask: Broadcasts to (B, H, L, S), a shorter last dimension padded as hidden (below
            opset 24 it is an error, where onnx.reference 1.23.2 pads it): True where a key is seen;
            or numbers that are added, of any type, rounded to that of `Q`.
        past_key: (B, KV, P, D).
        past_value: (B, KV, P, E).
        nonpad_kv_seqlen: (B,), int64, 0 to S: valid keys of each row; not with `past_key`.
        is_causal: Whether query i sees key j only for j <= i + offset: P with `past_key`,
            nonpad_kv_seqlen - L with that (negative for rows that see nothing), else 0.
        kv_num_heads: KV; for three dimensions. Must agree with the shape if given for four.
        q_num_heads: H; likewise.
        qk_matmul_output_mode: The fourth output: 0 the scaled scores, 1 after the softcap, 2 after
            the bias, 3 after the softmax.
        scale: 0 or more; None for 1 / sqrt(D).
        softcap: Scores become softcap * tanh(score / softcap); 0 for none.
        softmax_precision: Element type of the softmax; None for that of `Q`.
        left_window_size: Query at p = i + offset sees keys from p - left_window_size on; -1 for no
            limit.
        right_window_size: It sees keys up to p + right_window_size; -1 for no limit.
        context: Warned of a mask whose last dimension of 1 is padded.

    Returns:
        Y, (B, H, L, E) or (B, L, H * E) as `Q`; present_key, (B, KV, S, D); present_value,
        (B, KV, S, E); and qk_matmul_output, (B, H, L, S), None when the node does not have it.

    Raises:
        KernelError: For shapes, types and counts that contradict each other (`read_operands`); for
            a mask that does not fit (`mask_24`); for counts of valid keys and windows out of range
            (`additive_bias`); for a negative scale, an unknown mode or an unknown precision.
    """
    if qk_matmul_output_mode not in (0, 1, 2, 3):
        raise KernelError(
            f"`qk_matmul_output_mode` is {qk_matmul_output_mode}, expected 0, 1, 2 or 3"
        )
    is_shown = context is None or context.outputs > 3
    operands = read_operands(Q, K, V, past_key, past_value, q_num_heads, kv_num_heads)
    mask = None
    if attn_mask is not None and context is not None and context.opset < 24:
        mask = mask_23(attn_mask, operands)
    elif attn_mask is not None:
        warn = context.warn if context is not None else lambda _: None
        mask = mask_24(attn_mask, operands, nonpad_kv_seqlen, warn)
    factor = _scale(scale, operands)
    computed = operands
    if nonpad_kv_seqlen is not None:
        check_nonpad(nonpad_kv_seqlen, operands)
        if not is_shown:
            computed, mask = without_padding(operands, mask, nonpad_kv_seqlen, factor)
    bias = additive_bias(
        computed, mask, nonpad_kv_seqlen, bool(is_causal), left_window_size, right_window_size
    )
    shown_mode = qk_matmul_output_mode if is_shown else None
    output, shown = _attend(computed, bias, factor, softcap, softmax_precision, shown_mode)
    return output, operands.key, operands.value, shown


def _attend(
    operands: Operands,
    bias: Reals | None,
    scale: float,
    softcap: float,
    softmax_precision: int | None,
    shown_mode: int | None,
) -> tuple[Array, Array | None]:
    """Return Y, and the scores of the stage that the fourth output shows."""
    dtype = operands.query.dtype
    precision = (
        dtype
        if softmax_precision is None
        else floating_type(softmax_precision, "softmax_precision")
    )
    shown: Array | None = None

    def show(stage: int, scores: Reals) -> None:
        nonlocal shown
        if stage == shown_mode:  # a copy: the later stages work in place
            shown = scores.astype(dtype)

    scores = raw_scores(operands, scale)
    show(0, scores)
    scores = capped(scores, softcap, dtype)
    show(1, scores)
    if bias is not None:
        scores += bias
        scores = rounded(scores, dtype)
    show(2, scores)
    empty = None
    if bias is not None:
        hidden = np.asarray(np.equal(bias, -np.inf).all(axis=-1, keepdims=True))
        empty = hidden if hidden.any() else None
    weights = attention_weights(scores, empty, dtype, precision)
    show(3, weights)
    output = weighted_values(weights, operands, empty)
    if operands.is_flat:
        batch, heads, length, size = output.shape
        output = output.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
    return output, shown


def _scale(scale: float | None, operands: Operands) -> float:
    if scale is None:
        size = operands.query.shape[3]
        if size == 0:
            raise KernelError("the default `scale` is 1 / sqrt(head_size), but head_size is 0")
        return 1.0 / math.sqrt(size)
    if not scale >= 0:
        raise KernelError(f"`scale` is {scale}, expected 0 or more: its square root is applied")
    return scale


# RotaryEmbedding-23.


def rotary_embedding_23(
    X: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int,
    num_heads: int | None,
    rotary_embedding_dim: int,
) -> Array:
    """Rotate the first R elements of each head by the angle of its position; the others stay.

    Pairs (x1, x2) become (cos * x1 - sin * x2, sin * x1 + cos * x2): elements i and i + R / 2, or
    2 i and 2 i + 1 if interleaved. 16-bit types are computed in float32 and rounded once.

    Args:
        X: (B, H, L, D), or (B, L, H * D); D is even.
        cos_cache: (M, R / 2) with `position_ids`, else (B, L, R / 2).
        sin_cache: As `cos_cache`.
        position_ids: (B, L), int64, 0 to M - 1, never counted from the back.
        interleaved: Whether neighbours are rotated, not halves.
        num_heads: H; needed for three dimensions. For four, 0 and None are as good as H.
        rotary_embedding_dim: R, even, up to D; 0 for D.

    Returns:
        One array of the shape and type of `X`.

    Raises:
        KernelError: If ranks or shapes are others; if H is missing, or does not divide the last
            dimension; if D or R is odd, or R outside 0 to D; if a position is out of range.
    """
    heads_axis, shape = _split(X.shape, num_heads)
    size = shape[3]
    if size % 2:
        raise KernelError(f"head_size of `X` is {size}, expected an even number")
    if not 0 <= rotary_embedding_dim <= size or rotary_embedding_dim % 2:
        raise KernelError(
            f"`rotary_embedding_dim` is {rotary_embedding_dim}, expected an even number from 0 to "
            f"{size}, the head_size of `X`"
        )
    rotated = rotary_embedding_dim or size
    half = rotated // 2
    rows = (shape[0], shape[3 - heads_axis], half)
    spread = (slice(None), None) if heads_axis == 1 else (slice(None), slice(None), None)
    cos, sin = (each[spread] for each in _rows(cos_cache, sin_cache, position_ids, rows))

    first, second = (
        (slice(0, rotated, 2), slice(1, rotated, 2))
        if interleaved
        else (slice(0, half), slice(half, rotated))
    )
    split = X.reshape(shape)
    x1, x2 = widened(split[..., first]), widened(split[..., second])
    result = np.empty(shape, X.dtype)
    result[..., first] = cos * x1 - sin * x2
    result[..., second] = sin * x1 + cos * x2
    if rotated < size:
        result[..., rotated:] = split[..., rotated:]
    return result.reshape(X.shape)


def _split(shape: Ints, heads: int | None) -> tuple[int, Ints]:
    """Return the axis of the heads and the shape of X as (B, L, H, D), or its own of four."""
    if len(shape) == 4:
        if heads and heads != shape[1]:
            raise KernelError(
                f"`num_heads` is {heads}, but `X` with shape {shape} has "
                f"{counted(shape[1], 'head')}"
            )
        return 1, shape
    if len(shape) != 3:
        raise KernelError(f"`X` has rank {len(shape)} (shape {shape}), expected 3 or 4")
    if heads is None:
        raise KernelError("`num_heads` is missing, which three dimensions need")
    if heads < 1 or shape[2] % heads:
        raise KernelError(
            f"`num_heads` is {heads}, expected a divisor of {shape[2]}, the last dimension of `X`"
        )
    return 2, (*shape[:2], heads, shape[2] // heads)


def _rows(
    cos: Array, sin: Array, positions: Array | None, rows: tuple[int, int, int]
) -> tuple[Reals, Reals]:
    """Return the row of each cache for each token: (B, L, R / 2)."""
    if positions is None:
        why = "one row for each token, without `position_ids`"
        check_shape("cos_cache", cos.shape, rows, why)
        check_shape("sin_cache", sin.shape, rows, why)
        return widened(cos), widened(sin)
    why = "one row for each position, half of the rotated elements wide"
    check_shape("cos_cache", cos.shape, (*cos.shape[:1], rows[2]), why)
    check_shape("sin_cache", sin.shape, (*sin.shape[:1], rows[2]), why)
    check_shape("position_ids", positions.shape, rows[:2], "batch and sequence length of `X`")
    indices = positions.astype(np.int64, copy=False)
    # A negative position is huge when read as unsigned.
    greatest = int(indices.view(np.uint64).max(initial=0))
    for name, cache in (("cos_cache", cos), ("sin_cache", sin)):
        if greatest >= len(cache) and indices.size:
            batch, token = np.argwhere((indices < 0) | (indices >= len(cache)))[0].tolist()
            raise KernelError(
                f"`position_ids`[{batch}, {token}] is {indices[batch, token]}, expected 0 to "
                f"{len(cache) - 1}: axis 0 of `{name}` with shape {cache.shape}"
            )
    return widened(cos.take(indices, axis=0)), widened(sin.take(indices, axis=0))


LINES: Lines = {
    "RotaryEmbedding": {23: rotary_embedding_23},
    "Attention": {23: attention_23, 24: attention_23},
}
"""Operators of this module with their kernels, oldest first."""
