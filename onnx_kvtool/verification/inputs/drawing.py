"""Seeded inputs that respect the cache protocol: padding, counters, and all that fits to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.verification.inputs.cases import Case, Padding, Shape, Sizes
from onnx_kvtool.verification.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.verification.inputs.roles import Write
from onnx_kvtool.verification.inputs.symbols import (
    Layout,
    sizes_for,
    tokens_before,
)
from onnx_kvtool.verification.inputs.values import any_bits, token_ids, varied

# Padding of a batch: which rows hold no token, and what follows from that.


Mask = npt.NDArray[np.bool_]

_MOST = 2
"""Rows of padding that a sequence has at most."""


def padding_input(plan: InputPlan) -> str | None:
    """Return the name of the input that says which rows hold tokens; None if none ever says no."""
    if (mask := plan.covering_mask) is not None:
        return None if mask.name in plan.unpadded else mask.name
    if not plan.with_role("total_sequence_length"):
        return None
    return next((spec.name for spec in plan.with_role("seqlens_k")), None)


def padded(shape: Shape, past: int, padding: Padding, *, is_counted: bool) -> npt.NDArray[np.int64]:
    """Return a mask of ones with padding, of another length in each sequence.

    Each sequence keeps a new row, and each new row of a step after the first is a token.

    Padding stands among the `past` rows before the new ones, if there are any. If `is_counted`, the
    ones of a sequence come first, however many new rows there are.
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

    If `is_counted`, the ones of a sequence come first.
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
    spec = plan.covering_mask
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
    spec = plan.covering_mask
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
        tokens: Tokens of each sequence after the run.
        before: Tokens before it, where they are the same for all sequences; None where they are not
            known to be.
        ahead: How far positions that only index tables are ahead of the starts.
    """

    plan: InputPlan
    layout: Layout
    starts: Integers
    wrapped: Integers
    tokens: Integers
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
                return _per_sequence(self.tokens - 1, shape)
            case "total_sequence_length":
                return np.full(shape, self.tokens.max())
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


# All inputs of a run.


_EARLY = 3
"""The last start that is drawn when nothing says how many rows a cache has."""

_STEPS = 2
"""Rows that starts leave free for decode steps, where there are so many."""


def draw(
    plan: InputPlan,
    case: Case,
    seed: int,
    dims: Sizes | None = None,
    *,
    memory: int | None = None,
) -> Arrays:
    """Draw one value for every input.

    Starts leave room for the new rows; in circular mode they may cross the end. Positions follow
    the starts, and valid lengths are start + L. Token ids and positions index within their tables.
    Masks are ones, except for a first column of padding if there are rows before the new ones.

    Numbers in the model's shapes and sizes in `dims` override those of the case. The same seed
    gives the same values. A run may take `memory` bytes; None for what the machine has left.

    Raises:
        CannotDraw: If a dimension comes out negative.
        TooLarge: If a run would take more memory than there is for it.
    """
    layout = Layout(plan, sizes_for(plan, case, dims or {}), case.length, memory)
    drawer = _Drawer(plan, case, layout, np.random.default_rng(seed), dims or {})
    drawn = {spec.name: drawer.value(spec) for spec in plan.inputs}
    if case.overrides:
        drawn |= plan.defaults
    return drawn if case.padding == "usual" else {**drawn, **counted_positions(plan, drawn)}


@dataclass
class _Drawer:
    """Draws all inputs of one run, so that they fit each other."""

    plan: InputPlan
    case: Case
    layout: Layout
    rng: np.random.Generator
    sizes: Sizes

    def __post_init__(self) -> None:
        plan, layout = self.plan, self.layout
        if not layout.past and self.case.padding != "usual" and plan.window is not None:
            self.case = replace(self.case, padding="none")  # a window takes no such prompt
        self._alike: dict[tuple[Shape, ir.DataType], Array] = {}
        self._before = self._tokens_before()
        self._covers = None if self.case.padding == "usual" else plan.covering_mask
        self._starts = self._drawn_starts()
        starts = self._starts, self._wrapped()
        self._counters = Counters(
            plan, layout, *starts, self._tokens(), self._before, self._ahead()
        )

    def value(self, spec: InputSpec) -> Array:
        """Return the value of one input."""
        shape = self.layout.shapes[spec.name]
        if spec.name in self.plan.unpadded:
            return np.ones(shape, spec.dtype.numpy())
        match spec.role:
            case "past_cache" | "update":
                return any_bits(self.rng, spec.dtype, shape)
            case "token_ids":
                return self._ids(spec, shape)
            case "attention_mask":
                if spec is self._covers:
                    past, is_counted = shape[-1] - self.layout.length, self.plan.is_counted
                    values = padded(shape, past, self.case.padding, is_counted=is_counted)
                else:
                    values = self._mask(shape)
            case "free" if spec.uses.rows is not None and spec.dtype.is_integer():
                return self._ids(spec, shape)
            case _:
                counted = self._counters.value(spec)
                if counted is None:
                    return self._free(spec, shape)
                is_far = self.case.start == "far" and spec.is_circular
                values = counted + (1 << 32) if is_far else counted
        return values.astype(spec.dtype.numpy())

    def _free(self, spec: InputSpec, shape: Shape) -> Array:
        """Return values that no role limits; around edges, some are equal to those of an input."""
        case, plan = self.case, self.plan
        # Large queries would see one row of a cache alone.
        values = "moderate" if plan.has_caches and case.values == "wide" else case.values
        drawn = varied(self.rng, spec.dtype, shape, values, plan.points, spec.name)
        other = self._alike.setdefault((shape, spec.dtype), drawn)
        if case.values == "edges" and other is not drawn and spec.name not in plan.points.sizing:
            drawn.reshape(-1)[::4] = other.reshape(-1)[::4]
        return drawn

    def _ids(self, spec: InputSpec, shape: Shape) -> Array:
        """Return ids, among them rows that differ, and the last one in a case to the end."""
        rows, dtype = spec.uses.rows, spec.dtype
        last = [rows - 1] if self.case.start == "end" and rows is not None else []
        ids = token_ids(self.rng, dtype, shape, spec.uses, self.plan.directions, last)
        if self.case.values == "below" and rows is not None and int(dtype.min) < 0:
            flat = ids.reshape(-1)
            flat[::2] = flat[::2] - min(rows, int(dtype.max))
            flat[:1] = -1
        return ids

    def _tokens_before(self) -> int | None:
        """Return the tokens before the run, where they are the same for all sequences."""
        plan, case, layout = self.plan, self.case, self.layout
        if case.padding == "usual" and not plan.with_role("past_length"):
            return None
        own = dict(case.sizes)  # of caches that hold the last rows only
        for pair in plan.pairs:
            dim = plan.rows(pair)
            if pair.kind != "fixed" and isinstance(dim, str) and dim not in own:
                return layout.rows(pair)
        return tokens_before(plan, case, self.sizes, layout.length)

    def _drawn_starts(self) -> Integers:
        """Draw a start per sequence, for at least as many as any input has."""
        layout, rng, case = self.layout, self.rng, self.case
        count = max((size for shape in layout.shapes.values() for size in shape[:2]), default=1)
        following = self.plan.with_role("write_indices", "position_ids")
        writes = [write for spec in following for write in spec.uses.writes]
        if self._before is not None:
            return np.full(count, self._before, np.int64)
        if not writes and layout.past:
            return np.full(count, layout.past, np.int64)
        known = [last for spec in following if (last := layout.last_start(spec)) is not None]
        if self.plan.is_counted:
            known += [rows - layout.length for rows in self.plan.capacities]
        first = max([0, *(-write.offset for write in writes)])
        last = max(min(known, default=_EARLY), first)
        if case.start == "zero":
            return np.full(count, first, np.int64)
        if case.start == "end":
            starts = rng.integers(first, last, count, endpoint=True)
            starts[:1] = self._crossing(first, max(known, default=None)) or last
            return starts
        later = min(first + 1, last)
        starts = rng.integers(later, max(last - _STEPS, later), count, endpoint=True)
        if case.batch > 1:
            starts[:1] = max(last - _STEPS, later)  # so that the last step is one token at the end
        return starts

    def _ahead(self) -> int:
        """Return how far positions may run ahead of a growing cache, to the last row of a table.

        What a model makes of them besides could contradict the cache.
        """
        rows = [
            spec.uses.rows or 0
            for spec in self.plan.with_role("position_ids")
            if spec.uses.only_rows and not spec.uses.writes and self.layout.is_sequence(spec)
        ]
        if not rows or not self.case.reaches or not self.layout.past:
            return 0
        return max(min(rows) - int(self._starts.max()) - self.layout.length - _STEPS, 0)

    def _crossing(self, first: int, last: int | None) -> int | None:
        """Return a position whose rows cross the end of a circular cache that positions address.

        None if no positions do, or if there is none between `first` and `last`.
        """
        capacity = self._circular(self.plan.with_role("position_ids"))
        if capacity is None:
            return None
        rounds = 1 if last is None else (last + self.layout.length - 1) // capacity
        crossing = rounds * capacity - self.layout.length + 1
        return crossing if crossing >= first and (last is None or crossing <= last) else None

    def _wrapped(self) -> Integers:
        """Draw starts that cross or lie past the end of circular caches, if the case wants them."""
        capacity = self._circular(self.plan.inputs)
        if self.case.start != "end" or capacity is None or self._before is not None:
            return self._starts
        wrapped = self.rng.integers(capacity, 2 * capacity, self._starts.shape)
        wrapped[:1] = capacity - self.layout.length + 1
        return wrapped

    def _circular(self, inputs: Iterable[InputSpec]) -> int | None:
        """Return the rows of the smallest circular cache that `inputs` address; None without."""
        writes = (w for spec in inputs for w in spec.uses.writes if w.mode == "circular")
        sizes = (self.layout.capacity(write) for write in writes)
        return min(filter(None, sizes), default=None)

    def _tokens(self) -> Integers:
        """Return the tokens of each sequence after the run."""
        layout = self.layout
        batch = max((size for shape in layout.shapes.values() for size in shape[:1]), default=1)
        if self.case.padding == "usual":
            return self._starts[:batch] + layout.length
        total = layout.past + layout.length
        mask = padded((batch, total), layout.past, self.case.padding, is_counted=True)
        return np.asarray(mask.sum(axis=-1), np.int64)

    def _mask(self, shape: Shape) -> Integers:
        """Return ones with some padding that leaves no query without anything to attend to.

        A query without a key differs between runtimes. Rows that stand before the new ones may be
        masked: the first, in every other sequence that has a past. Without a past it is the last
        of several rows; no other causal query looks at it. A mask for each query has zeros
        anywhere but in the first column, which every query may see.
        """
        mask = np.ones(shape, np.int64)
        if len(shape) > 2 and shape[-2] > 1 and shape[-1] > 1:
            mask[..., 1:] = self.rng.integers(0, 2, mask[..., 1:].shape)
        elif len(shape) > 1 and shape[-1] > self.layout.length:
            padded = np.flatnonzero(self._starts[: shape[0]] > 0)[::2]
            mask[padded, ..., 0] = 0
        elif len(shape) > 1 and shape[-1] == self.layout.length > 1:
            mask[::2, ..., -1] = 0
        return mask
