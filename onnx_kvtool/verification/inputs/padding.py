"""Padding and counters: which rows of a cache hold tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.symbolic.dimensions import names_in
from onnx_kvtool.verification.inputs.cases import Padding, Shape
from onnx_kvtool.verification.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.verification.inputs.roles import Write
from onnx_kvtool.verification.inputs.symbols import Layout, kinds_of

# Padding of a batch: which rows hold no token, and what follows from that.


Mask = npt.NDArray[np.bool_]

_MOST = 2
"""Rows of padding that a sequence has at most."""


def padding_input(plan: InputPlan) -> str | None:
    """Return the name of the input that says which rows hold tokens; None if none ever says no."""
    if (mask := covering_mask(plan)) is not None:
        return None if mask.name in plan.unpadded else mask.name
    if not plan.with_role("total_sequence_length"):
        return None
    return next((spec.name for spec in plan.with_role("seqlens_k")), None)


def covering_mask(plan: InputPlan) -> InputSpec | None:
    """Return the input that says of each sequence which of all rows hold a token; None without.

    It is the only mask of integers or booleans in (batch, rows) whose rows are those that caches
    hold and the new ones.
    """
    kinds = kinds_of(plan)
    found = [
        spec
        for spec in plan.with_role("attention_mask")
        if len(spec.shape) == 2
        and (spec.dtype.is_integer() or spec.dtype == ir.DataType.BOOL)
        and isinstance(dim := spec.shape[-1], str)
        and (kinds.get(dim) == "total" or {"past", "length"} <= {kinds[n] for n in names_in(dim)})
    ]
    return found[0] if len(found) == 1 else None


def padded(shape: Shape, past: int, padding: Padding, *, is_counted: bool) -> npt.NDArray[np.int64]:
    """Return a mask of ones with padding, of another length in each sequence.

    Each sequence keeps a new row, and each new row of a step after the first is a token.

    Args:
        shape: (batch, rows).
        past: Rows before the new ones; the padding is among them where there are any.
        padding: On which side of the tokens it stands.
        is_counted: Whether the ones of a sequence come first, however many new rows there are.
    """
    mask = np.ones(shape, np.int64)
    batch, total = shape
    if padding not in ("left", "right"):
        return mask
    room = past or total - 1
    for sequence in range(batch):
        # The longest of sequences that are counted has no padding.
        number = sequence if is_counted else _MOST - sequence
        count = min(number % (_MOST + 1), room)
        if padding == "left":
            mask[sequence, :count] = 0
        else:
            end = total if is_counted or not past else past
            mask[sequence, end - count : end] = 0
    return mask


def lengthened(old: Array, shape: Shape, *, is_counted: bool) -> Array:
    """Return the mask of the step after the one that had `old`; its new rows are all tokens.

    Args:
        old: (batch, rows).
        shape: (batch, more rows).
        is_counted: Whether the ones of a sequence come first.
    """
    mask = np.ones(shape, old.dtype)
    kept = min(old.shape[-1], shape[-1])
    mask[:, :kept] = old[:, :kept]
    if is_counted:
        count = mask.astype(np.int64).sum(axis=-1, keepdims=True)
        mask = (np.arange(shape[-1]) < count).astype(old.dtype)
    return mask


def counted_positions(plan: InputPlan, inputs: Arrays) -> Arrays:
    """Return positions that count the tokens of a sequence, as hosts feed them; by name.

    A row of padding has the position of the token before it, or 0.
    """
    spec = covering_mask(plan)
    if spec is None:
        return {}
    mask = inputs[spec.name].astype(np.int64)
    counts = np.maximum(mask.cumsum(axis=-1) - 1, 0)
    found: Arrays = {}
    for positions in plan.with_role("position_ids"):
        shape = inputs[positions.name].shape
        if len(shape) == 2 and shape[0] == mask.shape[0] and 0 < shape[1] <= mask.shape[1]:
            new = counts[:, -shape[1] :]
            if plan.is_counted:  # the new rows stand behind the tokens before, not at the end
                past = mask.shape[1] - shape[1]
                first = mask.sum(axis=-1, keepdims=True) - shape[1] if past else 0
                new = np.maximum(first + np.arange(shape[1]), 0)
                new = np.broadcast_to(new, shape)
            found[positions.name] = np.asarray(new, positions.dtype.numpy())
    return found


def dead_rows(plan: InputPlan, inputs: Arrays, length: int) -> tuple[Mask, Mask] | None:
    """Return which new rows (batch, length) and which of all rows (batch, rows) hold no token.

    What a model computes for them nobody reads, and right forms of one model differ there. None
    if no mask says, or if all rows hold tokens.
    """
    tokens = tokens_of(plan, inputs, length)
    if tokens is None or tokens.all():
        return None
    rows = ~tokens
    new = rows[:, rows.shape[-1] - length :]
    if plan.is_counted and rows.shape[-1] > length:
        new = np.zeros_like(new)  # the new rows are the last ones of each sequence
    return np.asarray(new), np.asarray(rows)


def tokens_of(plan: InputPlan, inputs: Arrays, length: int) -> Mask | None:
    """Return which of all rows (batch, rows) hold a token, of `length` new ones and those before.

    None if no input says.
    """
    spec = covering_mask(plan)
    if spec is not None:
        mask = inputs[spec.name]
        return mask != 0 if mask.shape[-1] >= length else None
    counts = next((inputs[spec.name] for spec in plan.with_role("seqlens_k")), None)
    totals = next((inputs[spec.name] for spec in plan.with_role("total_sequence_length")), None)
    if counts is None or totals is None or totals.size != 1:
        return None
    total = int(totals.reshape(-1)[0])
    return np.asarray(np.arange(total) <= counts.astype(np.int64).reshape(-1, 1))


# Inputs that tell where the new rows stand and how many tokens there are.


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
        """Return what an input says about padding; None if it is not about padding."""
        shape = self.layout.shapes[spec.name]
        match spec.role:
            case "write_indices":
                return _per_sequence(self._written(spec.uses.writes), shape)
            case "nonpad_kv_seqlen":  # the rows that are valid after the new ones were written
                valid = self._written(self.plan.writes) + self.layout.length
                limit = self.layout.valid_limit(spec)
                return _per_sequence(valid if limit is None else np.minimum(valid, limit), shape)
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

    def _positions(self, spec: InputSpec, shape: Shape) -> Integers:
        """Return positions that count up from the starts: (..., B, L), (L,), (B,) or a scalar."""
        if not self.layout.is_sequence(spec):
            return _per_sequence(self.starts, shape)
        ahead = self.ahead if spec.uses.only_rows else 0
        positions = self.starts[:, None] + ahead + np.arange(shape[-1], dtype=np.int64)
        if len(shape) == 1:
            return positions[:1].reshape(shape)
        return np.broadcast_to(positions[: shape[-2]], shape)


def _per_sequence(values: Integers, shape: Shape) -> Integers:
    """Return as many of `values` as the first dimension of `shape` takes, in that shape."""
    column = values[: shape[0]].reshape(-1, *(1 for _ in shape[1:])) if shape else values[0]
    return np.array(np.broadcast_to(column, shape))
