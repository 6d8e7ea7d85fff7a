"""Sizes for symbolic dimensions, and cases that fit the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import onnx_ir as ir

from onnx_kvtool.core.machine import Budget
from onnx_kvtool.core.words import binary_bytes, counted
from onnx_kvtool.runtime.errors import CannotDraw, TooLarge
from onnx_kvtool.runtime.memory import available_memory
from onnx_kvtool.symbolic.dimensions import evaluate, names_in
from onnx_kvtool.verification.inputs.cases import (
    LIKELIEST,
    READINGS,
    Case,
    Kind,
    Reading,
    Shape,
    Sizes,
)
from onnx_kvtool.verification.inputs.interface import CachePair
from onnx_kvtool.verification.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.verification.inputs.roles import Write

# Sizes for the symbolic dimensions of a model's inputs.


def attempts(
    plan: InputPlan, case: Case, dims: Sizes, known: Sizes | None = None
) -> Iterator[tuple[Case, dict[str, int]]]:
    """Yield readings of the dimensions that may let `case` run, likeliest first.

    Of a model that looks at its inputs through windows these are sizes for the windows first; of
    one without caches, at last the numbers that stand in it.

    `known` has the sizes of the plan's extents in another case that ran. It is empty if none did,
    so that there is no point in a search, and None for the first case. Each case comes with the
    size of every name; no two draw the same.
    """
    seen: list[object] = []
    for reading, found in _readings(plan, known, case.extra):
        changed = replace(case, **reading.changes)
        sizes = sizes_for(plan, changed, dims, reading)
        sizes |= {**found, **plan.windows.channels, **dims, **dict(case.sizes)}
        # All else that is drawn follows from these.
        drawn = sizes, changed.start, changed.length
        if drawn not in seen:
            seen.append(drawn)
            yield changed, sizes


_MOST_SIZES = 100
"""Sizes that are tried in one reading."""


def _readings(plan: InputPlan, known: Sizes | None, extra: int) -> Iterator[tuple[Reading, Sizes]]:
    """Yield readings, each with sizes that take the place of what it gives some names."""
    windows, stride = plan.windows, plan.windows.strides[-1]
    if known:
        if extra % stride:  # not only multiples of the stride
            yield LIKELIEST, {name: size + extra for name, size in known.items()}
        for name, size in known.items():  # another size than in the other case
            yield LIKELIEST, {**known, name: size + stride}
        for reading in (LIKELIEST, _ALONE):
            yield reading, known
    for reading in (LIKELIEST, _ALONE) if known is None else ():
        for sizes in islice(windows.candidates(), _MOST_SIZES):
            yield reading, sizes
    for reading in READINGS:
        yield reading, {}
    if not plan.has_caches and known is None:
        open_names = _open_names(plan)
        for number in windows.numbers[:_MOST_SIZES]:
            yield LIKELIEST, dict.fromkeys(open_names, number)


_ALONE = Reading({"batch": 1})


def _open_names(plan: InputPlan) -> list[str]:
    """Return the names in shapes that neither a role nor their text explains."""
    kinds = plan.kinds
    named = [
        name
        for spec in plan.inputs
        if spec.role != "free"
        for dim in spec.shape
        for name in names_in(dim)
    ]
    return [name for name, kind in kinds.items() if kind != "batch" and name not in named]


_SIZES = (7, 11, 17, 19, 23, 29)
"""Sizes of dimensions that count something else, in order of appearance."""


def sizes_for(
    plan: InputPlan, case: Case, dims: Sizes, reading: Reading = LIKELIEST
) -> dict[str, int]:
    """Return the size of every name in the shapes of the model's inputs.

    Names that count the same get the same size: that of a name which the user has bound, if any.
    """
    kinds = plan.kinds
    # Of several lengths that of tokens counts: another may be that of what an encoder has found.
    lengths = {name for name, kind in kinds.items() if kind == "length"}
    own = lengths.intersection(dim for s in plan.with_role("token_ids") for dim in s.shape)
    known = dims.keys() & (kinds.keys() - (lengths - own if own else set()))
    bound: dict[Kind, int] = {kinds[name]: size for name, size in dims.items() if name in known}
    length = bound.get("length", min([case.length, *plan.capacities]))
    values: dict[Kind, int] = {
        "batch": case.batch,
        "length": length,
        "past": tokens_before(plan, case, dims, length),
        "capacity": case.capacity,
        **bound,
    }
    has_past = plan.has_caches or plan.with_role("past_length")
    values["total"] = (values["past"] if has_past else 0) + length
    values |= {"total": values[reading.total], "lone": values[reading.lone], **bound}
    others = iter(_SIZES)
    sizes: dict[str, int] = {}
    for name, kind in kinds.items():
        if kind != "size":
            sizes[name] = values[kind]
        else:
            size = next(others, _SIZES[-1]) + (0 if plan.has_caches else case.extra)
            sizes[name] = size if reading.size is None else reading.size
    for pair in plan.pairs:
        if pair.window is not None:
            sizes[str(plan.rows(pair))] = pair.window + _SLACK
    return {**sizes, **dims}


_SLACK = 2
"""Rows of a cache that drops what has left a window beyond those of the window."""


def tokens_before(plan: InputPlan, case: Case, dims: Sizes, length: int) -> int:
    """Return how many tokens went before a run of `case`, where growing caches do not say.

    Fixed caches have room for them and for the new rows, unless a case with padding of its own
    says how many they are.
    """
    is_counted = plan.is_counted and any(plan.capacities)
    if case.padding != "usual" or not (is_counted or plan.with_role("past_length")):
        return case.past
    names = [name for name, kind in plan.kinds.items() if kind == "capacity"]
    named = [dims.get(name, case.capacity) for name in names]
    room = max(min([*plan.capacities, *named], default=case.capacity) - length, 0)
    return room if case.start == "end" else min(case.past, room)


# Sizes that the cache protocol is about, once every name in the shapes has a size.


_TIMES = 5
"""How often the inputs of a run stand in memory: both models have outputs, among them caches as
large as the inputs, and so has a model that is run once more to see what is rounding; one layer
at a time makes more of them (4.4 were measured)."""


class Layout:
    """The shapes of a model's inputs for given sizes.

    Args:
        plan: The model's inputs.
        sizes: The size of every name in their shapes.
        length: New rows, where no shape tells.
        memory: Bytes that a run may take; None for what the machine has left.

    Attributes:
        shapes: The shape of every input.
        length: sequence_length: new rows per sequence.
        past: Rows that growing caches hold already; 0 without such a cache.

    Raises:
        CannotDraw: If a dimension has no size or a negative one.
        TooLarge: If a run would take more memory than there is for it.
    """

    def __init__(
        self, plan: InputPlan, sizes: Sizes, length: int, memory: int | None = None
    ) -> None:
        self._plan = plan
        self._kinds = plan.kinds
        self.shapes = {spec.name: _shape(spec, sizes) for spec in plan.inputs}
        _check_size(plan, self.shapes, memory)
        self.length = next(self._lengths(), length)
        growing = (self.rows(pair) for pair in plan.pairs if pair.kind != "fixed")
        self.past = next((rows for rows in growing if rows is not None), 0)

    def _lengths(self) -> Iterator[int]:
        """Yield what the inputs say of the number of new rows, the surest first."""
        for spec in self._plan.with_role("update"):
            if spec.uses.update_axis is not None:
                yield self.shapes[spec.name][spec.uses.update_axis]
        for spec in self._plan.with_role("token_ids"):
            yield from self.shapes[spec.name][-1:]
        for spec in self._plan.with_role("position_ids"):
            yield from self.shapes[spec.name][-1:] if len(spec.shape) > 1 else ()
        for spec in self._plan.inputs:
            for axis, dim in enumerate(spec.shape):
                if isinstance(dim, str) and self._kinds.get(dim) == "length":
                    yield self.shapes[spec.name][axis]

    def rows(self, pair: CachePair) -> int | None:
        """Return how many rows a cache has; None when its sequence axis is unknown."""
        return None if pair.axis is None else self.shapes[pair.past][pair.axis]

    def capacity(self, write: Write) -> int | None:
        """Return max_sequence_length of a TensorScatter; None when it is unknown."""
        rows = None if write.cache is None else self.rows(write.cache)
        return write.capacity if rows is None else rows

    def last_start(self, spec: InputSpec) -> int | None:
        """Return the last value of `spec` that leaves room for the new rows; None if unknown."""
        last = []
        for write in spec.uses.writes:
            capacity = self.capacity(write)
            if write.mode == "linear" and capacity is not None:
                last.append(capacity - write.offset - self.length)
        if spec.role == "position_ids" and spec.uses.rows is not None:
            last.append(spec.uses.rows - self.length)
        return min(last, default=None)

    def valid_limit(self, spec: InputSpec) -> int | None:
        """Return the largest valid length that `spec` may give; None when it is unknown."""
        if spec.uses.capacity is not None:
            return spec.uses.capacity
        known = map(self.capacity, self._plan.writes)
        return min((size for size in known if size is not None), default=None)

    def is_sequence(self, spec: InputSpec) -> bool:
        """Return whether the last dimension of `spec` counts new rows, not sequences."""
        if not spec.shape:
            return False
        dim = spec.shape[-1]
        if isinstance(dim, str) and self._kinds.get(dim) in ("length", "batch"):
            return self._kinds[dim] == "length"
        return len(spec.shape) > 1 or self.shapes[spec.name][-1] == self.length


def _shape(spec: InputSpec, sizes: Sizes) -> Shape:
    shape: list[int] = []
    for axis, dim in enumerate(spec.shape):
        try:
            size = evaluate(dim, sizes)
        except (KeyError, ZeroDivisionError) as error:
            raise CannotDraw(
                f"dimension {axis} of input `{spec.name}` has no size: `{dim}`"
            ) from error
        if size < 0:
            raise CannotDraw(f"dimension {axis} of input `{spec.name}` would be {size}: `{dim}`")
        shape.append(size)
    return tuple(shape)


def _check_size(plan: InputPlan, shapes: Mapping[str, Shape], memory: int | None) -> None:
    bits = 0
    for spec in plan.inputs:
        each = _BITS.get(spec.dtype) or max(spec.dtype.bitwidth, 8)
        bits += each * math.prod(shapes[spec.name])
    needed = _TIMES * bits // 8
    if needed < _NEGLIGIBLE or (most := available_memory() if memory is None else memory) is None:
        return
    if needed > most:
        raise TooLarge(
            f"a run would take about {binary_bytes(needed)} of memory, "
            f"expected at most {binary_bytes(most)}",
            help="give the dimensions of inputs small sizes with `--dim NAME=INT`",
            needed=needed,
        )


_NEGLIGIBLE = 1 << 20
"""Bytes that no system is asked for first."""

_BITS = {ir.DataType.FLOAT16: 16 + 32, ir.DataType.BFLOAT16: 16 + 32, ir.DataType.STRING: 8 * 64}
"""Bits of an element in memory: one of 16 bits is computed in 32 bits as well, to see what is
rounding, and a short Python string takes about 64 bytes."""


# Cases with as many sequences and rows as there is memory for.


def fitting(plan: InputPlan, case: Case, dims: Sizes, memory: int) -> Case:
    """Return `case` with as many of its sequences, then rows, as fit; the smallest if none does."""
    found = case
    for found in _smaller(case):
        try:
            Layout(plan, sizes_for(plan, found, dims), found.length, memory)
        except TooLarge:
            continue
        except CannotDraw:
            return case  # another reading of the dimensions may be right
        return found
    return found


def least_memory(plan: InputPlan, case: Case, dims: Sizes) -> int:
    """Return the bytes that a run of the smallest form of `case` takes; 0 if nobody knows."""
    *_, least = _smaller(case)
    try:
        Layout(plan, sizes_for(plan, least, dims), least.length, 0)
    except TooLarge as error:
        return error.needed
    except CannotDraw:
        return 0
    return 0


def reaching(plan: InputPlan, case: Case, dims: Sizes, budget: Budget) -> Iterator[Case]:
    """Yield forms of `case` with as many rows as windows, limits and tables of the model ask for.

    Of the numbers in the model, the largest counts whose run takes a small part of the budget. Rows
    go beyond it first, and then up to it, as nothing runs behind a table.
    """
    if not case.reaches:
        return
    kinds = set(plan.kinds.values())
    growing = any(pair.kind != "fixed" and pair.axis is not None for pair in plan.pairs)
    counted_rows = case.length + _STEPS
    tables = {spec.uses.rows or 0 for spec in plan.with_role("position_ids")}
    windows = {} if plan.window is None else {plan.window + _SLACK + 1}
    for point in sorted(tables.union(plan.points.lengths, windows), reverse=True):
        if point > _FARTHEST:
            continue
        is_farther = growing and "past" in kinds and point > case.past + counted_rows
        if is_farther or windows:
            near = replace(case, batch=1)
            found = [replace(near, past=max(n, 0)) for n in (point - 2, point - counted_rows)]
            one = replace(near, length=1)
            found += [replace(one, past=rows) for rows in (point + 1, point - _STEPS - 1)]
        elif plan.has_caches and "capacity" in kinds and point >= case.capacity:
            found = [replace(case, capacity=rows) for rows in (point + 3, point)]
        elif not plan.has_caches and "length" in kinds and point >= case.length:
            found = [replace(case, length=rows, batch=1) for rows in (point + 3, point)]
            if point * plan.points.elements > _PRODUCTS * budget.seconds or point > _LONGEST:
                continue
        else:
            continue
        try:
            Layout(plan, sizes_for(plan, found[0], dims), case.length, budget.memory // _SHARE)
        except TooLarge:
            continue
        except CannotDraw:
            return
        yield from found
        return


def roomier(plan: InputPlan, case: Case, times: int, budget: Budget) -> Case:
    """Return `case` with so many times as many sequences, as far as there is time for them."""
    most = int(_PRODUCTS * budget.seconds) // max(plan.points.elements * case.batch, 1)
    times = max(min(times, most, _MOST_TIMES), 1)
    return replace(case, batch=case.batch * times, chunks=())


_MOST_TIMES = 64
"""Times as many sequences as a case has."""

_STEPS = 2
"""Decode steps that follow a first run; tables must have rows for them."""

_SHARE = 8
"""Of the memory for a run: the part that long caches may take."""

_PRODUCTS = 400_000_000
"""Elements of weights times rows that a second of the budget may be spent on."""

_FARTHEST = 8192
"""Rows of a cache, whatever there is memory for."""

_LONGEST = 2048
"""Rows of a prompt: each attends to each."""


def _smaller(case: Case) -> Iterator[Case]:
    """Yield a case and smaller ones; one sequence of two rows tells more than two of one row."""
    yield case
    for batch in range(case.batch - 1, 0, -1):
        yield _named(replace(case, batch=batch))
    if case.length > 1:
        yield _named(replace(case, batch=1, length=1))


def _named(case: Case) -> Case:
    sizes = f"{counted(case.batch, 'sequence')} of {counted(case.length, 'row')}"
    return replace(case, name=f"{case.name}, as {sizes}")
