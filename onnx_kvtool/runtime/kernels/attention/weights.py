"""The arithmetic of Attention: scores, their softmax, and the values that it weighs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.attention.operands import Operands
from onnx_kvtool.runtime.kernels.elementwise.precision import is_narrow, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.precision import Reals, rounded

__all__ = ["attention_weights", "capped", "raw_scores", "weighted_values"]

_FEW = 32
"""Queries of a group up to which BLAS is faster with the many keys as the rows of the product."""


def raw_scores(operands: Operands, scale: float) -> Reals:
    """Return scale * Q K^T, (B, H, L, S), a new array.

    The queries of a group are rows of one product with the keys that they share, so that no key is
    repeated.
    """
    dtype = operands.query.dtype
    query, key = widened(operands.query), widened(operands.key)
    if not is_narrow(dtype):
        query = query * dtype.type(scale)
    else:
        root = rounded(np.asarray(math.sqrt(scale), np.float32), dtype)
        query = rounded(query * root, dtype)
        key = rounded(key * root, dtype)
    rows = _grouped(query, key)
    if rows.shape[-2] <= _FEW:
        scores = (key @ rows.swapaxes(-1, -2)).swapaxes(-1, -2)
    else:
        scores = rows @ key.swapaxes(-1, -2)
    return rounded(scores.reshape(operands.scores_shape), dtype)


def capped(scores: Reals, softcap: float, dtype: np.dtype[Any]) -> Reals:
    """Return softcap * tanh(scores / softcap), or the scores for a softcap of 0."""
    if not softcap:
        return scores
    cap = rounded(np.asarray(softcap, scores.dtype), dtype)
    limited = rounded(np.tanh(rounded(scores / cap, dtype)), dtype)
    return rounded(limited * cap, dtype)


def attention_weights(
    scores: Reals,
    empty: npt.NDArray[np.bool_] | None,
    dtype: np.dtype[Any],
    precision: np.dtype[Any],
) -> Reals:
    """Return the softmax of the scores over the keys.

    Args:
        scores: (B, H, L, S), values of `dtype`; may be overwritten.
        empty: True for queries that see no key, whose weights are 0; broadcasts to (B, H, L, 1).
            None when there is none.
        dtype: The type to which the weights are rounded in the end.
        precision: The type to which the scores and each step of the softmax are rounded before;
            float64 computes in itself.

    Returns:
        (B, H, L, S). A row whose greatest score is minus infinity though a key is seen is NaN, as
        the softmax of the schema's function body has it (onnx.reference 1.23.2 gives 0).
    """
    values = scores if precision == dtype else _in(scores, precision)
    values -= values.max(axis=-1, keepdims=True, initial=-np.inf)
    values = _in(values, precision)
    values = _in(np.exp(values, out=values), precision)
    # Only the sum is rounded once: bfloat16 added one by one stops growing at 256 times an element.
    values /= _in(values.sum(axis=-1, keepdims=True), precision)
    if empty is not None and empty.any():
        values[np.broadcast_to(empty, (*values.shape[:-1], 1))[..., 0]] = 0
    return rounded(rounded(values, precision), dtype).astype(_computed(dtype), copy=False)


def weighted_values(
    weights: Reals, operands: Operands, empty: npt.NDArray[np.bool_] | None
) -> Array:
    """Return weights V, (B, H, L, E), of the element type of the query; 0 where no key is seen."""
    value = widened(operands.value)
    dtype = operands.query.dtype
    products = _grouped(weights, value) @ value
    shape = (*weights.shape[:-1], value.shape[-1])
    output: Array = products.reshape(shape).astype(dtype, copy=False)
    if empty is not None and empty.any():  # weights of 0 would still make NaN of NaN and infinity
        output[np.broadcast_to(empty, (*weights.shape[:-1], 1))[..., 0]] = 0
    return output


def _in(values: Reals, precision: np.dtype[Any]) -> Reals:
    """Return values rounded to a type, in the type in which its arithmetic is done."""
    return rounded(values.astype(_computed(precision), copy=False), precision)


def _computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if is_narrow(dtype) else dtype


def _grouped(rows: Reals, shared: Reals) -> Reals:
    """Return (B, H, L, n) as (B, KV, H / KV * L, n), for a product with (B, KV, n, m)."""
    batch, heads, length, width = rows.shape
    kv_heads = shared.shape[1]
    return rows.reshape(batch, kv_heads, heads // kv_heads * length, width)
