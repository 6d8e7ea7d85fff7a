"""Biases of attention by the distance of query and key, of `com.microsoft`.

onnxruntime has them on GPUs alone; they are what its documentation and tests say.
"""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_input
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["gated_relative_position_bias", "relative_position_bias"]


def relative_position_bias(
    bias_table: Array,
    query_length: Array,
    key_length: Array,
    *,
    is_bidirectional: int,
    max_distance: int,
) -> tuple[Array]:
    """Look up the bias of each distance, as T5 puts distances into buckets.

    Args:
        bias_table: (buckets, H) by its shape; in memory head by head.
        query_length: L, one element.
        key_length: S, one element.
        is_bidirectional: Whether later keys have buckets of their own, half of them.
        max_distance: From which on all distances share the last bucket.

    Returns:
        (1, H, L, S).

    Raises:
        KernelError: If there are too few buckets.
    """
    buckets, heads = bias_table.shape
    rows, columns = (int(n.reshape(())) for n in (query_length, key_length))
    away = np.arange(columns)[None] - np.arange(rows)[:, None]
    share = buckets // 2 if is_bidirectional else buckets
    exact = share // 2
    if exact < 1 or max_distance <= exact:
        raise KernelError(
            f"`max_distance` is {max_distance} for {buckets} buckets, expected more than have a "
            "bucket of their own"
        )
    distance = np.abs(away) if is_bidirectional else np.maximum(-away, 0)
    steps = math.log2(max_distance / exact)
    # Where the logarithm is a whole number it is met, whatever its last bit.
    grown = np.log2(np.maximum(distance, exact) / exact) / steps * (share - exact) + 1e-6
    far = np.minimum(exact + grown.astype(np.int64), share - 1)
    index = np.where(distance < exact, distance, far)
    if is_bidirectional:
        index = index + np.where(away > 0, share, 0)
    return (bias_table.reshape(heads, buckets)[:, index][None],)


def gated_relative_position_bias(
    query_layer: Array,
    query_bias: Array,
    rel_pos: Array,
    weight: Array,
    bias: Array,
    eco_a: Array,
    token_offset: Array | None = None,
    *,
    num_heads: int,
) -> tuple[Array]:
    """Gate a bias by what a query says of it.

    Args:
        query_layer: (B, L, H * D).
        query_bias: (H * D,).
        rel_pos: (1, H, L, L).
        weight: (D, W), W even.
        bias: (W,).
        eco_a: (1, H, 1, 1).
        token_offset: Refused: tokens without padding.
        num_heads: H.

    Returns:
        (B, H, L, L).

    Raises:
        KernelError: If the width does not fit, and for what is refused.
    """
    refuse_input("token_offset", token_offset)
    batch, rows, width = query_layer.shape if query_layer.ndim == 3 else (0, 0, 0)
    if num_heads < 1 or not width or width % num_heads or weight.shape[-1] % 2:
        raise KernelError(
            f"`query_layer` has shape {query_layer.shape} and `weight` {weight.shape}, expected a "
            f"width that {num_heads} heads share, and an even one"
        )
    with np.errstate(all="ignore"):
        query = widened(query_layer) + widened(query_bias)
        query = query.reshape(batch, rows, num_heads, width // num_heads).transpose(0, 2, 1, 3)
        gates = query @ widened(weight) + widened(bias)
        halves = gates.reshape(*gates.shape[:-1], 2, -1).sum(axis=-1)
        u, r = np.split(sigmoid_of(halves), 2, axis=-1)
        gate = u * (r * widened(eco_a) - 1) + 2
        return (narrowed(np.asarray(gate * widened(rel_pos)), query_layer.dtype),)
