"""Inputs that tell where the new rows stand and how many tokens there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.inputs.layout import Layout
from onnx_kvtool.runtime.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.runtime.inputs.roles import Write

__all__ = ["Counters", "Integers"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Counters:
    """Where the new rows of a run stand, in each sequence.

    Attributes:
        plan: The model's inputs.
        layout: Their shapes in this run.
        starts: Where they stand in the text, and in linear caches; for at least as many sequences
            as any input has.
        wrapped: Where they are written in circular caches.
        tokens: Gives the tokens of each sequence after the run, for those that ask.
        before: Tokens before it, where they are the same for all sequences; None where they are not
            known to be.
        ahead: How far positions that only index tables are ahead of the starts.
    """

    plan: InputPlan
    layout: Layout
    starts: Integers
    wrapped: Integers
    tokens: Callable[[], Integers]
    before: int | None
    ahead: int = 0

    def value(self, spec: InputSpec) -> Integers | None:
        """Return what an input says of them; None for one that says something else."""
        shape = self.layout.shapes[spec.name]
        match spec.role:
            case "write_indices":
                return _per_sequence(self._written(spec.uses.writes), shape)
            case "nonpad_kv_seqlen":
                return _per_sequence(self._valid(spec), shape)
            case "seqlens_k":
                return _per_sequence(self.tokens() - 1, shape)
            case "total_sequence_length":
                return np.full(shape, self.tokens().max())
            case "position_ids":
                return self._positions(spec, shape)
            case "past_length" if self.before is not None:
                return np.full(shape, self.before)
            case "condition" if self.before is not None:
                # Exporters that keep prompts apart choose by whether there are caches.
                return np.full(shape, int(self.before > 0))
        return None

    def _written(self, writes: Sequence[Write]) -> Integers:
        modes = {write.mode for write in writes}
        return self.wrapped if modes == {"circular"} else self.starts

    def _valid(self, spec: InputSpec) -> Integers:
        """Return how many rows are valid after the new ones were written."""
        writes = [write for other in self.plan.inputs for write in other.uses.writes]
        valid = self._written(writes) + self.layout.length
        limit = self.layout.valid_limit(spec)
        return valid if limit is None else np.minimum(valid, limit)

    def _positions(self, spec: InputSpec, shape: tuple[int, ...]) -> Integers:
        """Return positions that count up from the starts: (..., B, L), (L,), (B,) or a scalar."""
        if not self.layout.is_sequence(spec):
            return _per_sequence(self.starts, shape)
        ahead = self.ahead if spec.uses.only_rows else 0
        positions = self.starts[:, None] + ahead + np.arange(shape[-1], dtype=np.int64)
        if len(shape) == 1:
            return positions[:1].reshape(shape)
        return np.broadcast_to(positions[: shape[-2]], shape)


def _per_sequence(values: Integers, shape: tuple[int, ...]) -> Integers:
    """Return as many of `values` as the first dimension of `shape` takes, in that shape."""
    column = values[: shape[0]].reshape(-1, *(1 for _ in shape[1:])) if shape else values[0]
    return np.array(np.broadcast_to(column, shape))
