"""A model with growing caches and its fixed form, fed by a host and compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.verification.comparison.judge import Account
from onnx_kvtool.verification.growing.pair import (
    Arrangement,
    GrowingPair,
    growing_pair,
    kept_rows_of,
)
from onnx_kvtool.verification.inputs.cases import CASES, Case, Padding
from onnx_kvtool.verification.inputs.drawing import (
    Mask,
    dead_rows,
    padding_input,
    tokens_of,
)
from onnx_kvtool.verification.inputs.interface import CachePair, Port
from onnx_kvtool.verification.inputs.plan import InputPlan
from onnx_kvtool.verification.inputs.stepping import rows_of
from onnx_kvtool.verification.inputs.symbols import fitting, least_memory
from onnx_kvtool.verification.inputs.values import moderate
from onnx_kvtool.verification.report import Settings
from onnx_kvtool.verification.subject import Host, Subject, through

# The runs that compare a model with growing caches with its fixed form.


_CHUNK = 3
"""New rows of a chunk: more than one, and another number than a batch has sequences."""


def growing_cases(pair: GrowingPair, count: int | None, steps: int | None) -> tuple[Case, ...]:
    """Return the cases for a pair: prompts, steps, padding, chunks, and caches filled to the end.

    The first run of a case fits into the capacity; its steps end there.

    `count` and `steps` are None for the usual ones; a larger count adds cases of other sizes.
    """
    room = pair.room
    usual = _usual(pair, room)
    cases = list(usual if count is None else usual[:count])
    while count is not None and len(cases) < count:
        cases.append(_varied(usual[len(cases) % len(usual)], len(cases), room))
    cases = [_sized(case, pair) for case in cases]
    if steps is not None:
        cases = [replace(case, chunks=(1,) * steps) for case in cases]
    return tuple(cases)


def _sized(case: Case, pair: GrowingPair) -> Case:
    """Return a case with sizes for caches of A that hold the last rows only.

    Where one of them shares the name of its size with a cache that holds all rows, the case has no
    more rows than both hold.
    """
    named = [(cache, str(pair.plan.shapes[cache.past][cache.axis])) for cache in pair.caches]
    every = {dim for cache, dim in named if cache.most is None}
    most = min((c.most for c, dim in named if c.most and dim in every), default=case.past)
    case = replace(case, past=min(case.past, most))
    sizes = {
        dim: min(case.past, cache.most)
        for cache, dim in named
        if cache.most is not None and cache.arrangement == "grows" and dim not in every
    }
    return replace(case, sizes=tuple(sizes.items()))


def _usual(pair: GrowingPair, room: int) -> list[Case]:
    """Return the cases for caches with at most `room` filled rows."""
    is_counted, window = pair.plan.is_counted, pair.window
    sides: list[Padding] = ["right"] if is_counted else ["left", "right"]
    if padding_input(pair.plan) is None:
        sides = []
    last: Padding = (*sides, "none")[0]
    rows: list[tuple[str, int, int, int, Padding, tuple[int, ...]]] = [
        ("a prompt for two empty caches", 2, 3, 0, "none", (1, 1)),
        ("one token for one sequence", 1, 1, 4, "none", (1,)),
        *((f"three prompts with padding on the {side}", 3, 5, 0, side, (1, 1)) for side in sides),
        ("a chunk of tokens in mid-sequence", 1, _CHUNK, 4, "none", (1,)),
        # onnxruntime's GroupQueryAttention takes chunks behind other rows for one sequence only.
        ("sequences of different lengths", 3, 1, 5, last, (1, 1))
        if is_counted
        else ("chunks behind padding", 2, 2, 5, last, (_CHUNK, 1)),
    ]
    if window is not None:
        past = max(min(window, room) - 2, 0)
        rows.append(("tokens over the end of a window", 2, 1, past, "none", (1, 1, 1)))
        rows.append(("a chunk over the end of a window", 1, _CHUNK, past, "none", (1,)))
    cases = []
    for name, batch, new, old, padding, chunks in rows:
        length = min(new, room)
        past = min(old, room - length)
        cases.append(Case(name, batch, length, past, "anywhere", padding, chunks))
    lengths = (name for name, kind in pair.plan.kinds.items() if kind == "length")
    fixed = next((pair.dims[name] for name in lengths if name in pair.dims), None)
    length = min(fixed or (1 if is_counted else _CHUNK), room)
    steps = (fixed or 1,) * min(2, (room - length) // (fixed or 1))
    past = room - length - sum(steps)
    return [*cases, Case("tokens up to the last row", 2, length, past, "end", last, steps)]


def _varied(base: Case, number: int, capacity: int) -> Case:
    """Return a case like `base` in sizes that follow from its number."""
    batch, length = 1 + (base.batch + number) % 4, min(1 + (base.length + 2 * number) % 7, capacity)
    past = min(base.past and 1 + (base.past + number) % 9, capacity - length)
    name = f"case {number + 1}, {batch} x {length} rows behind {past}"
    return replace(base, name=name, batch=batch, length=length, past=past)


# What a host feeds to a model with growing caches and to its fixed form, and what it reads.


def padding_host(plan: InputPlan, ports: Iterable[Port] = (), left_out: str | None = None) -> Host:
    """Return a host that reads no rows of padding.

    A right model may compute anything there, and hands the rows of caches on to nobody but
    attention, which a mask keeps from looking at them.
    """
    kinds = plan.kinds
    axes: dict[str, tuple[int, int]] = {}
    for port in ports:
        of = [kinds.get(dim) if isinstance(dim, str) else None for dim in port.shape or ()]
        if of.count("batch") == 1 and of.count("length") == 1:
            axes[port.name] = of.index("batch"), of.index("length")
    return Host(
        lambda inputs: {name: value for name, value in inputs.items() if name != left_out},
        partial(_live, plan, axes),
    )


def _live(
    plan: InputPlan,
    axes: Mapping[str, tuple[int, int]],
    inputs: Arrays,
    outputs: Arrays,
) -> Arrays:
    """Return outputs with zeros for all rows that hold no token.

    `axes` has the axes of sequences and of new rows of the outputs where they are known.
    """
    _, length = rows_of(plan, inputs)
    tokens = tokens_of(plan, inputs, length)
    if tokens is None:
        return outputs
    dead = dead_rows(plan, inputs, length)
    caches = {pair.present: pair for pair in plan.pairs}
    live = dict(outputs)
    for name, value in outputs.items():
        if (pair := caches.get(name)) is not None:
            live[name] = _without(value, _empty(plan, tokens, value, pair), 0, pair.axis)
        elif dead is not None:
            live[name] = _without(value, dead[0], *axes.get(name, (0, 1)))
    return live


def _empty(plan: InputPlan, tokens: Mask, cache: Array, pair: CachePair) -> Mask:
    """Return which rows of a cache hold no token.

    A cache with fewer rows than there are tokens holds the last ones. If it has more and tokens
    are counted, the rest is not in use: GroupQueryAttention returns zeros there.
    """
    rows, total = 0 if pair.axis is None else cache.shape[pair.axis], tokens.shape[-1]
    if pair.window is not None:
        count = tokens.sum(axis=-1, keepdims=True, dtype=np.int64)
        return np.asarray(np.arange(rows) >= pair.kept(count, rows))
    if rows < total:
        return ~tokens[:, total - rows :] if rows else ~tokens
    rest = np.full((len(tokens), rows - total), plan.is_counted)
    return np.concatenate([~tokens, rest], axis=-1)


def _without(value: Array, dead: Mask, batch: int, axis: int | None) -> Array:
    """Return a value with zeros for dead rows; all zeros if dead rows are unknown."""
    if not dead.any():
        return value
    rank, sequences = value.ndim, dead.shape[0]
    if rank <= batch or value.shape[batch] != sequences:
        return np.zeros_like(value)
    order, gone = [1] * rank, dead.any(axis=-1)
    order[batch] = sequences
    if axis is not None and batch < axis < rank:
        if value.shape[axis] == dead.shape[-1]:
            order[axis], gone = dead.shape[-1], dead
        elif value.shape[axis] == 1:  # of the last row only
            gone = dead[:, -1]
    return np.where(gone.reshape(order), np.zeros((), value.dtype), value)


def _buffered(pair: GrowingPair, inputs: Arrays) -> Arrays:
    """Return the inputs of the fixed form, whose host keeps caches in buffers of their capacity.

    Rows that are not in use are zeros as long as none is, and drawn numbers afterwards: nobody
    may read them.

    Raises:
        RunFailed: If a mask alone counts the tokens, and has no columns for them.
    """
    before, length = rows_of(pair.plan, inputs)
    fed = dict(inputs)
    dtypes = {spec.name: spec.dtype for spec in pair.plan.inputs}
    for number, cache in enumerate(pair.caches):
        rows = inputs[cache.past]
        shape = cache.shape(rows)
        rest = np.zeros(shape, rows.dtype)
        if before:
            rest = moderate(np.random.default_rng([before, number]), dtypes[cache.past], shape)
        fed[cache.past] = cache.fixed(rows, before, rest)
    mask, columns = pair.plan.covering_mask, pair.mask_columns
    if mask is not None and columns is not None:
        if before + length > columns == pair.capacity and not pair.is_counter_fed:
            raise RunFailed(f"`{mask.name}` counts the tokens, and has {columns} columns")
        # Of a mask that is longer A reads no more where it keeps no more rows.
        old = inputs[mask.name][:, :columns]
        fed[mask.name] = np.pad(old, [(0, 0), (0, columns - old.shape[-1])])
    if not pair.is_counter_fed:
        del fed[pair.counter.name]
    return fed


def _read(pair: GrowingPair, reader: Host, inputs: Arrays, outputs: Arrays) -> Arrays:
    """Return the outputs with caches of the rows that are in use, as the other model has them.

    A cache of another shape than it went in with stays as it is.
    """
    tokens = sum(rows_of(pair.plan, inputs))
    read = dict(outputs)
    for cache in pair.caches:
        value = outputs[cache.present]
        is_past_the_end = not cache.is_circular and tokens > cache.capacity
        if value.shape == cache.shape(inputs[cache.past]) and not is_past_the_end:
            read[cache.present] = cache.kept(value, tokens)
    return reader.outputs(inputs, read)


# Two models that are a growing one and its fixed form, made ready to be compared.


@dataclass(frozen=True, slots=True)
class Grown:
    """A growing model `a` and its fixed form `b`, each with a host that the comparison needs."""

    pair: GrowingPair
    a: Subject
    b: Subject

    @property
    def limit(self) -> int | None:
        """Rows after which the fixed form has to fail."""
        return self.pair.capacity

    def least(self, settings: Settings) -> int:
        """Return the bytes that the smallest run of the fixed form takes, beside its weights."""
        if self.b.plan is None:
            return 0
        return least_memory(self.b.plan, CASES[0], {**settings.dims, **self.pair.dims})

    def cases(self, settings: Settings) -> tuple[Case, ...]:
        """Return what is run, with as many sequences as there is memory for in either model."""
        cases = growing_cases(self.pair, settings.cases, settings.steps)
        if (plan := self.b.plan) is None:
            return cases
        memory = settings.budget.memory
        return tuple(fitting(plan, case, self.pair.dims, memory) for case in cases)

    def notes(self, account: Account) -> list[str]:
        """Return what a reader should know of the comparison."""
        notes = []
        for is_circular, what in (
            (False, "caches of {} grow, those of {} have {} rows: the rows in use were compared"),
            (True, "caches of {} roll, those of {} are circular of {} rows: compared by position"),
        ):
            rows = {c.capacity for c in self.pair.caches if c.is_circular == is_circular}
            if rows:
                sizes = " or ".join(map(str, sorted(rows)))
                notes.append(what.format(self.a.name, self.b.name, sizes))
        loose = [
            cache.present
            for cache in self.pair.caches
            if (seen := account.outputs.get(cache.present)) is not None and not seen.bit_equal
        ]
        if loose and account.difference is None:
            caches = counted(len(loose), "cache")
            notes.append(f"new rows of {caches} agree within the tolerance, all others bit for bit")
        if account.dead:
            notes.append(padding_note(self.pair.plan, account))
        elif padding_input(self.pair.plan) is None and not self.pair.plan.unpadded:
            notes.append("run without padding: no input is known to be a mask of all rows")
        return [*notes, account.end] if account.end else notes


def dead_count(plan: InputPlan, inputs: Arrays) -> int:
    """Return how many rows of a run, new ones and those in caches, are not compared."""
    _, length = rows_of(plan, inputs)
    found = dead_rows(plan, inputs, length)
    return 0 if found is None else int(found[0].sum() + found[1].sum())


def padding_note(plan: InputPlan, account: Account) -> str:
    """Return how many rows were skipped, and the input that marks them as padding."""
    rows_left = counted(account.dead, "row")
    return f"{rows_left} of padding, as `{padding_input(plan)}` says, skipped"


def grown(a: Subject, b: Subject, settings: Settings) -> Grown | None:
    """Return two models ready to be compared; None if they are no such pair."""
    dims = settings.dims

    def probe(
        plan: InputPlan, pair: CachePair, axis: int, capacity: int
    ) -> tuple[Arrangement, int] | None:
        known = next((one for one in settings.rotated if one.past == pair.past), None)
        if known is not None:
            return known.arrangement, known.rows
        return kept_rows_of(a, plan, pair, axis, capacity, dims)

    pair = growing_pair(a, b, dims, probe)
    if pair is None:
        return None
    reader = padding_host(pair.plan, a.interface.outputs, pair.counter.name)
    return Grown(
        pair,
        replace(a.with_host(reader), plan=pair.plan),
        b.with_host(Host(partial(_buffered, pair), partial(_read, pair, reader))),
    )


def without_padding(a: Subject, b: Subject) -> tuple[Subject, Subject]:
    """Return two models with equal caches, for a host that gets a padding mask.

    GroupQueryAttention counts the tokens of each sequence. For the rows behind them its standard
    form computes other values, which nobody may read.
    """
    plan = a.plan
    if plan is None or not plan.is_counted:
        return a, b
    reader = padding_host(plan, a.interface.outputs)
    return a.with_host(through(reader, a.host)), b.with_host(through(reader, b.host))
