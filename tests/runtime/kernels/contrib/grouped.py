"""Inputs of GroupQueryAttention, and the operator written one query and one key at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["HEADS", "KV_HEADS", "OUTPUTS", "Array", "Call", "D", "M", "naive"]

HEADS, KV_HEADS, D, M = 4, 2, 16, 13

OUTPUTS = ("output", "present_key", "present_value", "output_qk")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Call:
    """A call: how many rows there are.

    Attributes:
        length: New rows.
        past: Rows of the past buffers; None without them.
        valid: Rows that are valid after it, in each row of the batch.
        total: total_sequence_length.
    """

    length: int
    past: int | None
    valid: tuple[int, ...]
    total: int

    @property
    def starts(self) -> tuple[int, ...]:
        """The row at which the new ones begin, in each row of the batch."""
        return tuple(0 if self.length == self.total else v - self.length for v in self.valid)

    def inputs(self, dtype: Any = np.float32, packed: bool = False) -> dict[str, Array | None]:
        """Return the inputs that every call has, and None for the others."""
        rng = np.random.default_rng(self.length + self.total)
        batch = len(self.valid)

        def rows(heads: int) -> Array:
            return rng.standard_normal((batch, self.length, heads * D)).astype(dtype)

        def buffer() -> Array | None:
            if self.past is None:
                return None
            return rng.standard_normal((batch, KV_HEADS, self.past, D)).astype(dtype)

        query, key, value = rows(HEADS), rows(KV_HEADS), rows(KV_HEADS)
        if packed:
            query = np.concatenate([query, key, value], axis=-1)
        return {
            "query": query,
            "key": None if packed else key,
            "value": None if packed else value,
            "past_key": buffer(),
            "past_value": buffer(),
            "seqlens_k": np.array(self.valid, np.int32) - 1,
            "total_sequence_length": np.array([self.total], np.int32),
            **dict.fromkeys(["cos_cache", "sin_cache", "position_ids"]),
            **dict.fromkeys(["attention_bias", "head_sink"]),
        }


def naive(
    call: Call,
    inputs: dict[str, Array | None],
    *,
    scale: float = 0.0,
    softcap: float = 0.0,
    local_window_size: int = -1,
    causal: int = 1,
    smooth_softmax: int = -1,
) -> tuple[Array, Array]:
    """Return the output, (B, L, H * D), and the weights, (B, H, L, total), in float64.

    There is no rotation, and query, key and value are not packed.
    """
    arrays = {n: v.astype(np.float64) for n, v in inputs.items() if v is not None}
    batch, group = len(call.valid), HEADS // KV_HEADS
    output = np.zeros((batch, call.length, HEADS, D))
    weights = np.zeros((batch, HEADS, call.length, call.total))
    split = {n: arrays[n].reshape(batch, call.length, -1, D) for n in ("query", "key", "value")}

    def row_of(name: str, b: int, head: int, row: int) -> Array:
        new = row - call.starts[b]
        if new >= 0:
            return np.asarray(split[name][b, new, head])
        return np.asarray(arrays[f"past_{name}"][b, head, row])

    for b, head, i in np.ndindex(batch, HEADS, call.length):
        at = call.starts[b] + i
        scores = {}
        for j in range(call.valid[b]):
            if causal and (j > at or 0 < local_window_size <= at - j):
                continue
            score = split["query"][b, i, head] @ row_of("key", b, head // group, j)
            score *= scale or D**-0.5
            score = softcap * np.tanh(score / softcap) if softcap else score
            if "attention_bias" in arrays:
                bias = arrays["attention_bias"]
                score += bias[b % bias.shape[0], head % bias.shape[1], i, j]
            scores[j] = score
        total = sum(np.exp(score) for score in scores.values())
        if "head_sink" in arrays:
            total += np.exp(arrays["head_sink"][head])
        elif smooth_softmax == 1:
            total += 1
        for j, score in scores.items():
            weights[b, head, i, j] = np.exp(score) / total
            output[b, i, head] += weights[b, head, i, j] * row_of("value", b, head // group, j)
    return output.reshape(batch, call.length, -1), weights
