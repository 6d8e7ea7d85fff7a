"""Attention and QAttention of `com.microsoft`, with their projections inside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.dot_product import Hiding, dot_product
from onnx_kvtool.runtime.kernels.contrib.quantized import mat_mul_integer_to_float
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_input, refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = ["attention", "q_attention"]


def attention(
    input: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    do_rotary: int | None,
    mask_filter_value: float | None,
    num_heads: int,
    past_present_share_buffer: int | None,
    qkv_hidden_sizes: tuple[int, ...] | None,
    rotary_embedding_dim: int | None,
    scale: float | None,
    unidirectional: int,
    context: Context | None = None,
) -> tuple[Array, ...]:
    """Project to query, key and value, and attend, as onnxruntime 1.31.1 does on a CPU.

    Letters: B batch, H heads, L rows, P past rows, T = P + L, D head size, E value head size.
    16-bit types are computed in float32; query, key and value are rounded, and the output.

    Args:
        input: (B, L, W).
        weights: (W, H * D + H * D + H * E).
        bias: (H * D + H * D + H * E,), added to the product; None for zero.
        mask_index: (B,), (2 B,), (B, T) or (B, L, T); see `padding_bias`.
        past: (2, B, H, P, D), keys and values, for E = D.
        attention_bias: (B or 1, H or 1, L, T), added to the scores.
        past_sequence_length: Refused, as are buffers that are shared.
        do_rotary: None or 0.
        mask_filter_value: Added where a key is padding; None for -10000.
        num_heads: H.
        past_present_share_buffer: None or 0.
        qkv_hidden_sizes: H * D, H * D and H * E; None for thirds of the weights.
        rotary_embedding_dim: Has no meaning without `do_rotary`.
        scale: Factor of the scores; None and 0 for 1 / sqrt(D).
        unidirectional: Whether later keys are hidden.
        context: Tells whether the node has an output for the present, which a past needs.

    Returns:
        output, (B, L, H * E); and present, (2, B, H, T, D), for E = D alone.

    Raises:
        KernelError: For shapes that contradict each other, and what is refused.
    """
    refuse_input("past_sequence_length", past_sequence_length)
    refuse_value("past_present_share_buffer", past_present_share_buffer, None, 0)
    refuse_value("do_rotary", do_rotary, None, 0)
    if past is not None and context is not None and context.outputs < 2:
        raise KernelError("`past` is given, but the node has no output `present`")
    product = _product(input, weights, bias)
    return _attended(
        input,
        product,
        past,
        _Softmax(
            ("mask_index", mask_index),
            mask_filter_value,
            attention_bias,
            unidirectional == 1,
            scale,
        ),
        (num_heads, qkv_hidden_sizes),
        has_present=context is None or context.outputs > 1,
    )


def q_attention(
    input: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    do_rotary: int | None,
    mask_filter_value: float | None,
    num_heads: int,
    past_present_share_buffer: int | None,
    scale: float | None,
    unidirectional: int,
    context: Context | None = None,
) -> tuple[Array, ...]:
    """Project codes as `mat_mul_integer_to_float` does, and attend as `attention` does.

    Args:
        input: (B, L, W), int8 or uint8.
        weight: (W, 3 * H * D), int8 or uint8.
        bias: (3 * H * D,).
        input_scale: One element.
        weight_scale: One element, or (3 * H * D,).
        mask_index: As for `attention`.
        input_zero_point: One element; None for 0.
        weight_zero_point: One element, or (3 * H * D,); None for 0.
        past: (2, B, H, P, D).
        do_rotary: None or 0.
        mask_filter_value: As for `attention`, as the rest.
        num_heads: H.
        past_present_share_buffer: None or 0.
        scale: Factor of the scores.
        unidirectional: Whether later keys are hidden.
        context: Tells whether the node has an output for the present.

    Raises:
        KernelError: As for `attention`.
    """
    refuse_value("past_present_share_buffer", past_present_share_buffer, None, 0)
    refuse_value("do_rotary", do_rotary, None, 0)
    if past is not None and context is not None and context.outputs < 2:
        raise KernelError("`past` is given, but the node has no output `present`")
    (product,) = mat_mul_integer_to_float(
        input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias
    )
    softmax = _Softmax(
        ("mask_index", mask_index), mask_filter_value, None, unidirectional == 1, scale
    )
    return _attended(
        input,
        product,
        past,
        softmax,
        (num_heads, None),
        has_present=context is None or context.outputs > 1,
    )


@dataclass(frozen=True, slots=True)
class _Softmax:
    """How scores become weights: see `Hiding`, and `scale`, None and 0 for 1 / sqrt(D)."""

    mask: tuple[str, Array | None]
    filter_value: float | None
    bias: Array | None
    is_causal: bool
    scale: float | None


def _attended(
    input: Array,
    product: Array,
    past: Array | None,
    softmax: _Softmax,
    sizes: tuple[int, tuple[int, ...] | None],
    *,
    has_present: bool,
) -> tuple[Array, ...]:
    query, key, value = _heads(input, product, *sizes)
    if (past is not None or has_present) and key.shape != value.shape:
        raise KernelError(
            f"keys have a head size of {key.shape[3]} and values of {value.shape[3]}, expected "
            "the same for `past` and `present`"
        )
    if past is not None:
        batch, heads, _, size = key.shape
        rows = past.shape[3] if past.ndim == 5 else 0
        expected = (2, batch, heads, rows, size)
        check_shape("past", past.shape, expected, "keys and values, batch, heads, rows, head size")
        key = np.concatenate([past[0], key], axis=2)
        value = np.concatenate([past[1], value], axis=2)
    output = dot_product(
        widened(query),
        widened(key),
        widened(value),
        Hiding(
            softmax.mask,
            softmax.filter_value,
            softmax.bias,
            softmax.is_causal and input.shape[1] > 1,
        ),
        softmax.scale,
        product.dtype,
    )
    return (output, np.stack([key, value])) if has_present else (output,)


def _product(input: Array, weights: Array, bias: Array | None) -> Array:
    """Return the projection, rounded: (B, L, width)."""
    if input.ndim != 3:
        raise KernelError(f"`input` has shape {input.shape}, expected three dimensions")
    width = weights.shape[1] if weights.ndim == 2 else 0
    check_shape("weights", weights.shape, (input.shape[2], width), "the last dimension of `input`")
    with np.errstate(all="ignore"):
        product = np.asarray(widened(input) @ widened(weights))
        if bias is not None:
            check_shape("bias", bias.shape, (width,), "the last dimension of `weights`")
            product = product + widened(bias)
        return narrowed(product, input.dtype)


def _heads(
    input: Array, product: Array, heads: int, sizes: tuple[int, ...] | None
) -> tuple[Array, Array, Array]:
    """Return query, key and value: (B, H, L, size)."""
    width = product.shape[-1]
    widths = sizes if sizes is not None else (width // 3,) * 3
    if len(widths) != 3 or sum(widths) != width or widths[0] != widths[1]:
        raise KernelError(
            f"`qkv_hidden_sizes` is {sizes}, expected three sizes, the first two equal, that add "
            f"up to {width}, the last dimension of `weights`"
        )
    if heads < 1 or any(w < 1 or w % heads for w in widths):
        raise KernelError(f"`num_heads` is {heads}, expected a divisor of each of {widths}")
    parts = np.split(product, np.cumsum(widths)[:2], axis=-1)
    query, key, value = (
        part.reshape(*input.shape[:2], heads, part.shape[-1] // heads).transpose(0, 2, 1, 3)
        for part in parts
    )
    return query, key, value
