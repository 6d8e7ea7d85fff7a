"""Attention as MultiHeadAttention and Attention of `com.microsoft` compute it, heads split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_kvtool.runtime.kernels.contrib.attention_bias import check_attention_bias
from onnx_kvtool.runtime.kernels.contrib.padding_mask import padding_bias
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals

__all__ = ["Hiding", "dot_product"]

_FILTER = -10000.0


@dataclass(frozen=True, slots=True)
class Hiding:
    """What is added to the scores.

    Attributes:
        mask: The padding mask of the node, by the name of its input; see `padding_bias`.
        filter_value: What is added where a key is padding; None for -10000. A query that sees
            padding only attends to it.
        bias: `attention_bias`, (B or 1, H or 1, L, T).
        is_causal: Whether query i of L sees no key behind T - L + i.
    """

    mask: tuple[str, Array | None]
    filter_value: float | None
    bias: Array | None
    is_causal: bool


def dot_product(
    query: Reals,
    key: Reals,
    value: Reals,
    hiding: Hiding,
    scale: float | None,
    dtype: np.dtype[Any],
) -> Array:
    """Return softmax(scale * Q K^T + what hides keys) V.

    Hiding is adding, so that a score of NaN stays NaN; a query whose scores are all minus infinity
    gives NaN.

    Args:
        query: (B, H, L, D), float32.
        key: (B, H, T, D).
        value: (B, H, T, E).
        hiding: What is added to the scores.
        scale: None and 0 for 1 / sqrt(D).
        dtype: The element type of the result, to which it is rounded once.

    Returns:
        (B, L, H * E).

    Raises:
        KernelError: If the mask or the bias has a shape that does not fit.
    """
    batch, heads, length, size = query.shape
    total = key.shape[2]
    bias = hiding.bias
    if bias is not None:
        check_attention_bias(bias, (batch, heads, length, total))
    name, mask = hiding.mask
    filter_value = _FILTER if hiding.filter_value is None else hiding.filter_value
    padding = None if mask is None else padding_bias(name, mask, (batch, length, total))
    with np.errstate(all="ignore"):
        scores = (query * query.dtype.type(scale or 1.0 / math.sqrt(size))) @ key.swapaxes(-1, -2)
        if bias is not None:
            scores += widened(bias)
        if padding is not None:
            scores += padding * scores.dtype.type(filter_value)
        if hiding.is_causal:
            later = np.arange(total) > np.arange(length)[:, None] + (total - length)
            scores += np.where(later, scores.dtype.type(-np.inf), 0)
        scores -= scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores, out=scores)
        weights /= weights.sum(axis=-1, keepdims=True)
        output = narrowed(np.asarray(weights @ value), dtype)
    return output.transpose(0, 2, 1, 3).reshape(batch, length, heads * value.shape[3])
