"""A model with growing caches and its fixed form, and where their rows stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.runtime.errors import CannotDraw, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import RUNTIMES, Array, Arrays
from onnx_kvtool.verification.comparison.differences import bits_differ, moved_rows
from onnx_kvtool.verification.inputs.cases import CAPACITY, Case, Shape, Sizes
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.interface import (
    CachePair,
    Interface,
    interface_difference,
)
from onnx_kvtool.verification.inputs.plan import Dim, InputPlan, InputSpec
from onnx_kvtool.verification.inputs.roles import Uses
from onnx_kvtool.verification.inputs.symbols import attempts
from onnx_kvtool.verification.subject import Subject

# Where the rows of one cache stand in two models.


Places = npt.NDArray[np.signedinteger]

Arrangement = Literal["grows", "first", "last"]
"""How A keeps rows: in a cache of as many as are in use; in one of a fixed size, from its first
row on until it is full; or up to its last row, as if there always had been rows before. A full one
drops its first rows for new ones."""


@dataclass(frozen=True, slots=True)
class FixedCache:
    """A cache that A keeps in another way than B, where it has a fixed number of rows.

    Attributes:
        past: Name of the input of both models.
        present: Name of the output of both models.
        axis: The sequence axis, counted from the front.
        capacity: Rows that it has in B.
        is_circular: Whether row p of the text stands at p modulo the capacity in B, else at p.
        arrangement: How A keeps rows.
        most: Rows that A keeps at most; None for all of them.
    """

    past: str
    present: str
    axis: int
    capacity: int
    is_circular: bool = False
    arrangement: Arrangement = "grows"
    most: int | None = None

    def shape(self, rows: Array) -> Shape:
        """Return the shape that the cache has in B where it holds `rows` in A."""
        return (*rows.shape[: self.axis], self.capacity, *rows.shape[self.axis + 1 :])

    def fixed(self, rows: Array, tokens: int, rest: Array) -> Array:
        """Return the cache of B that holds what `rows` of A hold after so many tokens.

        `rest` has the rows that are not in use in B, in the shape of the result.
        """
        buffer = np.array(rest, rows.dtype)
        buffer[self._places(tokens, rows.shape[self.axis])] = rows
        return buffer

    def kept(self, buffer: Array, tokens: int) -> Array:
        """Return the cache of A that holds what `buffer` of B holds after so many tokens."""
        count = tokens if self.most is None else self.most
        if self.arrangement == "grows":
            count = min(count, tokens)
        return buffer[self._places(tokens, count)]

    def _places(self, tokens: int, count: int) -> tuple[slice | Places, ...]:
        """Return where the `count` rows of A stand in B, as an index."""
        # Of a cache that is not full yet the rows that follow stand at the same places in both.
        last = max(tokens, count) if self.arrangement == "first" else tokens
        places = np.arange(last - count, last)
        rows = places % self.capacity if self.is_circular else places
        return (*(slice(None),) * self.axis, rows)


# Which two models are one with caches that grow and its form with caches of fixed capacity.


Probe = Callable[[InputPlan, CachePair, int, int], "tuple[Arrangement, int] | None"]
"""Returns how A keeps the rows of a cache; see `kept_rows_of`."""


class Side(Protocol):
    """One of two models: what it looks like from outside, and what its inputs mean."""

    @property
    def interface(self) -> Interface:
        """Its inputs and outputs."""

    @property
    def plan(self) -> InputPlan | None:
        """What its inputs mean; None when they cannot be drawn."""


@dataclass(frozen=True, slots=True)
class GrowingPair:
    """A model with caches that grow or roll, and its form with fixed caches.

    Attributes:
        plan: What the inputs of A mean, and behind them `counter`.
        counter: The tokens before a step: an input of B alone, or of neither model.
        caches: The caches that A keeps in another way than B.
        capacity: Rows of the smallest cache that holds no more; None if all are circular.
        is_counter_fed: Whether `counter` is an input of B.
        mask_columns: Columns of the mask of all rows in B, where that is a number; else None.
        dims: Sizes that the user has bound, and those that B has as numbers.
    """

    plan: InputPlan
    counter: InputSpec
    caches: tuple[FixedCache, ...]
    capacity: int | None
    is_counter_fed: bool
    mask_columns: int | None
    dims: Sizes

    @property
    def room(self) -> int:
        """Most rows that caches are filled with: those of the smallest one that is not circular.

        Without one they go round circular caches twice.
        """
        own = {cache.past for cache in self.caches}
        known = [] if self.capacity is None else [self.capacity]
        for pair in self.plan.pairs:
            is_other = pair.past not in own and pair.window is None and pair.kind == "fixed"
            if is_other and (size := self.plan.rows(pair)) is not None:
                known.append(_size(size, self.dims))
        return min(known, default=2 * (self.window or 0) + 3)

    @property
    def window(self) -> int | None:
        """Rows of the smallest circular cache, or one that drops rows; None without."""
        circular = (cache.capacity for cache in self.caches if cache.is_circular)
        return min(circular, default=self.plan.window)


def growing_pair(
    a: Side,
    b: Side,
    dims: Sizes,
    probe: Probe = lambda *_: None,
) -> GrowingPair | None:
    """Return how the caches of A, which grow or roll, correspond to those of B, which do not.

    B may have one more input, the number of tokens before a step. `probe` returns how A keeps the
    rows of a cache that is circular in B. Return None for models that differ in anything else, or
    have all caches alike.
    """
    if a.plan is None or b.plan is None:
        return None
    more = b.plan.inputs[len(a.plan.inputs) :]
    if len(more) > 1 or any(spec.role != "past_length" for spec in more):
        return None
    common = replace(b.interface, inputs=b.interface.inputs[: len(a.interface.inputs)])
    if interface_difference(a.interface, common) is not None:
        return None
    other = {spec.name: spec for spec in b.plan.inputs}
    # What B writes there has other sizes than the caches of A.
    counter = replace(more[0], uses=Uses(None)) if more else _COUNTER
    inputs = (_told(spec, other[spec.name]) for spec in a.plan.inputs)
    plan = replace(a.plan, inputs=(*inputs, counter))
    bound = _bound(a.plan, other, dims)
    caches = tuple(_caches(a.plan, b.plan, b.interface, bound, plan, probe))
    if not caches:
        return None
    linear = [cache.capacity for cache in caches if not cache.is_circular]
    mask = a.plan.covering_mask
    columns = None if mask is None else other[mask.name].shape[-1]
    return GrowingPair(
        plan=plan,
        counter=counter,
        caches=caches,
        capacity=min(linear, default=None),
        is_counter_fed=bool(more),
        mask_columns=columns if isinstance(columns, int) else None,
        dims=bound,
    )


def may_be_growing_pair(a: Side, b: Side) -> bool:
    """Return whether two models are such a pair, for all that is seen without running them."""
    return growing_pair(a, b, {}, lambda *_: ("first", 1)) is not None


def wrong_order(a: Side, b: Side, dims: Sizes) -> str | None:
    """Return what to do where the caches grow in B and not in A; None if they do not."""
    if (pair := growing_pair(b, a, dims)) is None:
        return None
    past = pair.caches[0].past
    return f"`{past}` grows in B and has a fixed size in A; name the growing model first"


_COUNTER = InputSpec(" tokens", ir.DataType.INT64, (1,), "past_length", Uses(None))
"""The tokens before a step where no input of B is that; a name that exporters do not give."""


def _told(spec: InputSpec, other: InputSpec) -> InputSpec:
    """Return the role of an input of A from the model B; a TensorScatter adds facts."""
    if spec.role == "free" and other.role in ("write_indices", "position_ids"):
        return replace(spec, role=other.role, uses=other.uses)
    return spec


def _caches(
    a: InputPlan,
    b: InputPlan,
    interface: Interface,
    dims: Sizes,
    common: InputPlan,
    probe: Probe,
) -> Iterator[FixedCache]:
    """Yield the caches that two models keep in different ways, in the order of the inputs."""
    ports = {port.name: port.shape for port in interface.outputs}
    for pair in a.pairs:
        twin = b.pair_of(pair.past)
        axis = twin.axis if pair.axis is None and twin is not None else pair.axis
        if axis is None:
            continue
        rows, size = a.shapes[pair.past][axis], b.shapes[pair.past][axis]
        present = None if (shape := ports[pair.present]) is None else shape[axis]
        is_fixed = twin is not None and twin.kind == "fixed" if present is None else size == present
        if not is_fixed:  # it comes out of B with other rows than it goes in
            continue
        capacity = _size(size, dims)
        cache = FixedCache(pair.past, pair.present, axis, capacity)
        if twin is not None and twin.mode is not None:
            is_circular = twin.mode == "circular"
        else:  # rows are written modulo the capacity in B, and are not in A
            is_circular = _wraps(b, capacity) and not _wraps(a, capacity)
        if is_circular:
            found = None if pair.mode == "circular" else probe(common, pair, axis, capacity)
            if found is not None:
                arrangement, most = found
                yield replace(cache, is_circular=True, arrangement=arrangement, most=most)
        # No row of the cache of A was matched to a row of B.
        elif pair.kind == "growing" and isinstance(rows, str) and dims.get(rows) != capacity:
            yield cache


def _wraps(plan: InputPlan, capacity: int) -> bool:
    return any(write.mode == "circular" and write.capacity == capacity for write in plan.writes)


def _size(dim: Dim, dims: Sizes) -> int:
    return dim if isinstance(dim, int) else dims.get(dim, CAPACITY)


def _bound(plan: InputPlan, other: Mapping[str, InputSpec], dims: Sizes) -> dict[str, int]:
    """Return the sizes that B has as numbers, by their names in A, and those of the user.

    The rows of all tokens are as many in B in every step, and in A as there are.
    """
    kinds = plan.kinds
    numbers = {
        dim: size
        for spec in plan.inputs
        for dim, size in zip(spec.shape, other[spec.name].shape, strict=True)
        if isinstance(dim, str) and isinstance(size, int)
    }
    kept = {dim: n for dim, n in numbers.items() if kinds.get(dim) not in ("past", "total", None)}
    given = {dim: n for dim, n in dims.items() if kinds.get(dim) != "total" or dim not in numbers}
    return {**kept, **given}


# How a model keeps the rows of a cache that may roll, found by running it.


def kept_rows_of(
    subject: Subject,
    plan: InputPlan,
    pair: CachePair,
    axis: int,
    capacity: int,
    dims: Sizes,
) -> tuple[Arrangement, int] | None:
    """Return how a model keeps the rows of a cache, and how many; None if it rolls in no known way.

    `capacity` is that of the cache in its other form.
    """
    # A cache that keeps all rows beside this one may leave no room for a token more.
    runs = (_step(subject, plan, pair, tokens, dims) for tokens in (capacity, capacity - 1, 1))
    if (full := next(filter(None, runs), None)) is None:
        return None
    past, present = full
    before, after = past.shape[axis], present.shape[axis]
    new = before - moved_rows(past, present, axis)
    if new in (0, before):
        return None  # no row of the past is found behind another one
    if after != before or before != capacity:
        return ("grows", after) if after < before + new and after <= capacity else None
    begun = None if capacity < 3 else _step(subject, plan, pair, 1, dims)
    if begun is None:
        return None
    past, present = begun
    if moved_rows(past, present, axis) not in (0, before):
        return "last", before
    other = tuple(index for index in range(past.ndim) if index != axis)
    changed = np.flatnonzero(bits_differ(past, present).any(axis=other))
    return ("first", before) if changed.tolist() == [1] else None


def _step(
    subject: Subject, plan: InputPlan, pair: CachePair, tokens: int, dims: Sizes
) -> tuple[Array, Array] | None:
    """Return the cache before and after one more token; None if the model does not run."""
    case = Case("a token", 2, 1, tokens, "anywhere", "none")
    names = [port.name for port in subject.interface.inputs]
    for runtime in RUNTIMES:
        try:
            session = subject.session(runtime)
        except RuntimeUnavailable:
            continue
        for attempt, sizes in attempts(plan, case, dims):
            try:
                inputs: Arrays = draw(plan, attempt, 0, sizes)
                outputs = session.run({name: inputs[name] for name in names})
            except (CannotDraw, RunFailed):
                continue
            return inputs[pair.past], outputs[pair.present]
    return None
