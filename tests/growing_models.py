"""Decoders with caches that the caller feeds back, driven as a host drives them.

A host knows a decoder by the names of its inputs: `input_ids`, `attention_mask`, `position_ids`,
`past_key_values.*` beside the outputs `present.*`, `use_cache_branch` of optimum's merged decoders,
`past_length` where kvtool added it; and in decoders that were written with fixed caches
`key_cache.*` and `value_cache.*` beside the outputs `updated_*`, `write_indices` and
`nonpad_kv_seqlen`. This module needs numpy and onnx alone: what exports the fixtures checks them
with it as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

__all__ = ["CHUNKS", "Conversation", "Host", "conversation"]

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], Mapping[str, np.ndarray]]

CHUNKS = (5, 1, 1, 1)
"""How a conversation of eight tokens is fed: a prompt and three steps."""


@dataclass(frozen=True)
class Conversation:
    """Tokens of a batch from the first on, padded on the left.

    Attributes:
        ids: int64 (B, T), tokens.
        mask: int64 (B, T), 0 for padding and 1 for a token.
        others: What the model takes besides, the same at every step; by name.
    """

    ids: np.ndarray
    mask: np.ndarray
    others: Arrays

    @property
    def live(self) -> np.ndarray:
        """Which rows of the logits mean something, bool (B, T): those of tokens."""
        return self.mask.astype(bool)


def conversation(batch: int, length: int, *, vocabulary: int = 64, seed: int = 0) -> Conversation:
    """Return random tokens; each sequence but the first has one token less than the one before."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(1, vocabulary, (batch, length))
    padding = np.minimum(np.arange(batch), length - 1)[:, None]
    mask = (np.arange(length)[None] >= padding).astype(np.int64)
    return Conversation(ids, mask, {})


class Host:
    """Feeds a decoder from empty caches on, and each present back to its past.

    Args:
        model: The decoder, or its file. Weights are not read.
        run: Computes one step: inputs by name to outputs by name.
        sizes: Symbolic dimensions of caches that are not the batch or rows, by name.
        kept: The most rows that a decoder keeps whose mask is as long as these and the new tokens.
    """

    def __init__(
        self,
        model: onnx.ModelProto | str | Path,
        run: Run,
        sizes: Mapping[str, int] | None = None,
        kept: int | None = None,
    ) -> None:
        if not isinstance(model, onnx.ModelProto):
            model = onnx.load(model, load_external_data=False)
        self._run = run
        self._sizes = sizes or {}
        self._kept = kept
        self._inputs = {value.name: value for value in model.graph.input}
        outputs = {value.name for value in model.graph.output}
        presents = {
            name: re.sub(r"^past(_key_values)?\.", "present.", name)
            if name.startswith("past")
            else f"updated_{name}"
            for name in self._inputs
        }
        self.caches = {past: present for past, present in presents.items() if present in outputs}

    def answer(
        self, talk: Conversation, chunks: Sequence[int] = CHUNKS
    ) -> tuple[np.ndarray, Arrays]:
        """Return the logits of all tokens, (B, T, V), and the caches after the last, by present.

        Args:
            talk: What is fed; its T has to be the sum of the chunks.
            chunks: Number of tokens of each step.
        """
        batch, length = talk.ids.shape
        assert sum(chunks) == length, (chunks, length)
        caches = {past: self._empty(past, batch) for past in self.caches}
        positions = np.maximum(np.cumsum(talk.mask, axis=1) - 1, 0)
        logits, before = [], 0
        for chunk in chunks:
            after = before + chunk
            first = 0 if self._kept is None else max(before - self._kept, 0)
            offered = {
                "input_ids": talk.ids[:, before:after],
                "attention_mask": talk.mask[:, first:after],
                "position_ids": positions[:, before:after],
                "past_length": np.array([before], np.int64),
                "write_indices": np.full(batch, before, np.int64),
                "nonpad_kv_seqlen": np.full(batch, after, np.int64),
                "use_cache_branch": np.array([before > 0]),
                **talk.others,
                **caches,
            }
            found = self._run({name: offered[name] for name in self._inputs})
            logits.append(found["logits"])
            for past, present in self.caches.items():
                if ".encoder." not in past or before == 0:  # what an encoder gave does not change
                    caches[past] = found[present]
            before = after
        presents = {present: caches[past] for past, present in self.caches.items()}
        return np.concatenate(logits, axis=1), presents

    def _empty(self, past: str, batch: int) -> np.ndarray:
        """Return a cache before the first token: no row, or as many as the model says, of zeros."""
        tensor = self._inputs[past].type.tensor_type
        sizes = (dim.dim_value or self._sizes.get(dim.dim_param, 0) for dim in tensor.shape.dim[1:])
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        return np.zeros((batch, *sizes), dtype)
