"""Attention written from the text of onnx 1.23.2, one query and one key at a time, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Naive", "flat", "naive_attention"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Naive:
    """What the text gives.

    Attributes:
        y: (B, H, L, E).
        scores: The scores by `qk_matmul_output_mode`, (B, H, L, S) each.
    """

    y: Array
    scores: tuple[Array, Array, Array, Array]


def naive_attention(
    feeds: Mapping[str, Array],
    *,
    causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    left: int = -1,
    right: int = -1,
) -> Naive:
    """Attend row by row.

    Args:
        feeds: Inputs under the names of the schema, the four-dimensional forms.
        causal: Whether later keys are hidden.
        scale: Factor of the scores; None for 1 / sqrt(D).
        softcap: Limit of the scores; 0 for none.
        left: Keys before a query that it sees; -1 for all.
        right: Keys after a query that it sees; -1 for all.
    """
    q, k, v = (feeds[name].astype(np.float64) for name in "QKV")
    past = feeds["past_key"].shape[2] if "past_key" in feeds else 0
    if past:
        k = np.concatenate([feeds["past_key"].astype(np.float64), k], axis=2)
        v = np.concatenate([feeds["past_value"].astype(np.float64), v], axis=2)
    (batch, heads, length, size), (kv_heads, total) = q.shape, k.shape[1:3]
    factor = scale if scale is not None else 1 / np.sqrt(size)
    nonpad = feeds.get("nonpad_kv_seqlen")
    mask = feeds.get("attn_mask")
    if mask is not None:
        hidden = False if mask.dtype == np.bool_ else -np.inf
        width = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
        mask = np.pad(mask, width, constant_values=hidden)
        mask = np.broadcast_to(mask, (batch, heads, length, total))

    y = np.zeros((batch, heads, length, v.shape[3]))
    raw, capped, biased, weights = np.zeros((4, batch, heads, length, total))
    for b, h, i in np.ndindex(batch, heads, length):
        kv = h // (heads // kv_heads)
        position = i + (past if nonpad is None else nonpad[b] - length)
        bias = np.zeros(total)
        for j in range(total):
            seen = not causal or j <= position
            seen &= left < 0 or j >= position - left
            seen &= right < 0 or j <= position + right
            seen &= nonpad is None or j < nonpad[b]
            if mask is not None and mask.dtype == np.bool_:
                seen &= bool(mask[b, h, i, j])
            elif mask is not None:
                bias[j] = mask[b, h, i, j]
            if not seen:
                bias[j] = -np.inf
            score = float(q[b, h, i] @ k[b, kv, j]) * factor
            raw[b, h, i, j] = score
            capped[b, h, i, j] = softcap * np.tanh(score / softcap) if softcap else score
        row = biased[b, h, i] = capped[b, h, i] + bias
        keys = np.flatnonzero(bias != -np.inf)
        if keys.size:
            parts = np.exp(row[keys] - row[keys].max())
            weights[b, h, i, keys] = parts / parts.sum()
            y[b, h, i] = weights[b, h, i, keys] @ v[b, kv, keys]
    return Naive(y, (raw, capped, biased, weights))


def flat(array: Array) -> Array:
    """Return (B, H, L, D) as (B, L, H * D)."""
    batch, heads, length, size = array.shape
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3).reshape(batch, length, heads * size))
