"""What every stage of `raise` is given: assumptions, sizes of runs, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, get_args

import onnx_ir as ir

from onnx_kvtool.analysis.attention.masks import MaskFunction
from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.analysis.caches.find import find_caches
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.choices import (
    NATIVE_OPSET,
    AssumedValue,
    AttentionChoice,
    AttentionForm,
    ContribChoice,
)
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.core.walk import values as values_of
from onnx_kvtool.core.words import did_you_mean
from onnx_kvtool.emit.emitter import Names, ScopedValues
from onnx_kvtool.model_io.model import origin
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.fixing.dynamic import dynamic_parts
from onnx_kvtool.rewrite.fixing.fix import fix_sizes, folded_note
from onnx_kvtool.rewrite.raise_report import Raised, RaisedCache, RaiseReport, Unraised
from onnx_kvtool.rewrite.raising.in_functions import place_of
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim, dims_of, names_in, normal
from onnx_kvtool.symbolic.expressions import Dimension, Expr

# What a user may grant that a graph does not say.


KINDS = (*get_args(AssumedValue), "same-dim")
"""Names of all assumptions; `docs/commands/raise.md` explains them."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The assumptions of one request.

    Attributes:
        granted: As the user wrote them, each once.
        dims: Pairs of dimensions that are one size.
        values: For each kind about values, the names it is granted for; None among them grants it
            for every value that the caller of the graph supplies.
    """

    granted: tuple[str, ...] = ()
    dims: tuple[tuple[Dim, Dim], ...] = ()
    values: dict[str, frozenset[str | None]] = field(default_factory=dict)

    @staticmethod
    def parse(texts: Iterable[str]) -> Assumptions:
        """Read assumptions as `--assume` takes them.

        Raises:
            UsageError: If a text is no assumption, or two of them contradict each other.
        """
        granted = tuple(dict.fromkeys(texts))
        dims: list[tuple[Dim, Dim]] = []
        values: dict[str, frozenset[str | None]] = {}
        for text in granted:
            kind, colon, rest = text.partition(":")
            if kind not in KINDS or (colon and not rest) or (kind == "covers-past" and not rest):
                names = ", ".join(f"`{name}`" for name in KINDS)
                other = f"use one of {names}; `kvtool raise --help` has their forms"
                raise UsageError(
                    f"`{text}` is no assumption", help=did_you_mean(kind, KINDS, other)
                )
            if kind == "same-dim":
                dims.append(_pair(text, rest))
            else:
                values[kind] = values.get(kind, frozenset()) | {rest or None}
        try:
            SizeEqualities(dims)
        except ValueError as error:
            raise UsageError(f"the assumptions contradict each other: {error}") from error
        return Assumptions(granted, tuple(dims), values)

    @property
    def same_dims(self) -> tuple[str, ...]:
        """The granted texts that are about dimensions."""
        return tuple(text for text in self.granted if text.startswith("same-dim:"))

    def grants(self, kind: AssumedValue, value: ir.Value) -> str | None:
        """Return the text that grants `kind` for a value; None when nothing does.

        Without a name an assumption covers what the caller supplies, inputs of the graph or of a
        body, and not what the graph computes: nobody looked at that.
        """
        names = self.values.get(kind, frozenset())
        if value.name in names:
            return f"{kind}:{value.name}"
        if None in names and value.producer() is None:
            return kind
        return None

    def check(self, model: ir.Model) -> None:
        """Refuse assumptions about values or dimensions that the model does not have.

        Raises:
            UsageError: If a name is unknown; the nearest one is suggested.
        """
        dims = {dim for pair in self.dims for dim in pair if isinstance(dim, str)}
        if not self.values and not dims:
            return
        values = list(values_of(model))
        known = {value.name for value in values if value.name}
        for kind, given in self.values.items():
            for name in given:
                if name is not None and name not in known:
                    raise UsageError(
                        f"`--assume {kind}:{name}` names no value of the model",
                        help=did_you_mean(name, known),
                    )
        declared = {d for v in values for d in dims_of(v) or () if isinstance(d, str)}
        for dim in dims - declared:
            if normal(dim) not in map(normal, declared):
                raise UsageError(
                    f"`--assume same-dim` names `{dim}`, which is no dimension of the model",
                    help=did_you_mean(dim, declared),
                )


def _pair(text: str, rest: str) -> tuple[Dim, Dim]:
    sides = [side.strip() for side in rest.split("=", 1)]
    if len(sides) < 2 or not all(sides):
        raise UsageError(f"`{text}` is no assumption, expected `same-dim:A=B`")
    one, other = (n if isinstance(n := normal(side), int) else side for side in sides)
    return one, other


# What every stage of `raise` is given, and where it says what it did.


@dataclass(frozen=True, slots=True)
class RaiseSettings:
    """What a model is to be raised to.

    Attributes:
        opset: Version of the default domain of the result, at least 24; a later one stays.
        capacity: Rows of a cache that grows in the source: a number, or the name of a dimension;
            None to leave these caches as they are.
        attention: What becomes of attention in many nodes.
        contrib: What becomes of com.microsoft operators.
        dims: Sizes that the result has in place of names.
        static: Whether every size of the result has to be a number.
    """

    opset: int = NATIVE_OPSET
    assumptions: Assumptions = field(default_factory=Assumptions)
    capacity: int | str | None = None
    attention: AttentionChoice = "keep"
    contrib: ContribChoice = "keep"
    dims: Mapping[str, int] = field(default_factory=dict)
    static: bool = False

    def target(self, model: ir.Model) -> int:
        """Return the version of the default domain that a model is brought to."""
        return max(model.opset_imports[""], self.opset)


Size = int | None
"""A size as a number, `GROWN`, `LONGER`, `LONGER - k`, or None for any other.

`LONGER - k` are the rows in use and `k` elements behind them, which a Concat put there."""

GROWN = -1
"""A size that is the number of rows in use."""

LONGER = -2
"""A size of an input that is at least the number of rows in use."""


@dataclass(frozen=True, slots=True)
class Grown:
    """Which values are as long as the rows in use, found while caches still grow.

    Attributes:
        shapes: The sizes of each value of the main graph.
        types: Their element types.
        dims: Sizes that the result has in place of names.
        capacity: Rows of a cache of the result.
        caches: The cache of each value that is its rows in use.
    """

    shapes: dict[ir.Value, tuple[Size, ...]]
    types: dict[ir.Value, ir.DataType]
    dims: Mapping[str, int]
    capacity: int
    caches: dict[ir.Value, ir.Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowRead:
    """The rows that a model reads of a window: those from before a step in order, and new ones.

    Attributes:
        present: The circular cache after the step, (..., W, ...).
        new: The new rows.
        count: How many they are, or what that is called; None where nothing says it.
        gather: The node that takes the rows from before the step.
        order: Where these stand in the cache, oldest first: (min(P, W - 1),).
        kept: How many they are, computed: (1,).
        length: P, the tokens before the step: (1,).
        axis: The axis of the rows.
        capacity: W.
    """

    present: ir.Value
    new: ir.Value
    count: Dim
    gather: ir.Node
    order: ir.Value
    kept: ir.Value
    length: ir.Value
    axis: int
    capacity: int


class InOrder(NamedTuple):
    """All rows of a circular cache after a step, from the oldest to the newest.

    Attributes:
        cache: The cache.
        capacity: W.
        order: Where they stand in the cache, `(arange(W) + oldest) mod W`.
        oldest: The row of the first, modulo W: (1,).
    """

    cache: ir.Value
    capacity: int
    order: ir.Value
    oldest: ir.Value


_DONE = ("raised", "caches", "attention", "contrib", "inputs_added")
"""What a report says was done."""


@dataclass(slots=True)
class RaiseOutcome(RaiseReport):
    """The report in the making, and what the stages tell each other and verification.

    With anything in `blocked` the model is fit for nothing else.

    Attributes:
        positions: Positions that are assumed to count up by one.
        rotated: Windows that became circular caches.
        unpadded: Inputs that are assumed to be 1 throughout.
        is_in_range: Whether starts are assumed not to lie below 0.
        equal_dims: Dimensions that are equal in every run of the source, or are assumed to be.
        masks: For each written Attention, its mask as a function and the number of its queries.
        columns: With fixed sizes: the columns of inputs that mark keys.
        grown: With fixed sizes: which values are as long as the rows in use.
        in_use: The rows in use after a step, (1,), if caches got a capacity.
        windows: What is read of windows that became circular caches, by the value that joins rows
            from before a step and new ones.
        ordered: What was written to have the rows of circular caches in order.
        places: Where nodes stood in the source.
        growing: What attention lacked while caches grew, by its place.
        stuck: With fixed sizes: why values stay as long as the rows in use.
    """

    positions: list[str] = field(default_factory=list)
    rotated: list[RotatedCache] = field(default_factory=list)
    unpadded: set[str] = field(default_factory=set)
    is_in_range: bool = False
    equal_dims: list[tuple[Dim, Dim]] = field(default_factory=list)
    masks: dict[ir.Node, tuple[MaskFunction, Expr]] = field(default_factory=dict)
    columns: dict[ir.Value, int] = field(default_factory=dict)
    grown: Grown | None = None
    in_use: ir.Value | None = None
    windows: dict[ir.Value, WindowRead] = field(default_factory=dict)
    ordered: dict[ir.Value, InOrder] = field(default_factory=dict)
    places: Mapping[ir.Node, Location] = field(default_factory=dict)
    growing: Mapping[Location, Unraised] = field(default_factory=dict)
    stuck: list[Diagnostic] = field(default_factory=list)

    @staticmethod
    def of(model: ir.Model) -> RaiseOutcome:
        """Return the outcome of raising a model before anything was done to it."""
        opset = model.opset_imports.get("", 0)
        return RaiseOutcome(origin(model).name, None, opset, opset, model.ir_version)

    def report(self, path: str) -> RaiseReport:
        """Return the report on the model at a path; nothing was raised if it is blocked."""
        said = {one.name: getattr(self, one.name) for one in fields(RaiseReport)}
        if self.blocked:
            said |= {name: [] for name in _DONE}
        return RaiseReport(**{**said, "model": path})

    def tell(self, node: ir.Node, sentence: str, *, form: AttentionForm | None = None) -> None:
        """Add a sentence to the proof of a written Attention, once, and perhaps its form."""
        place = self.places[node]
        for number, done in enumerate(self.attention):
            if done.location == place and sentence not in done.proof:
                proof = (*done.proof, sentence)
                self.attention[number] = replace(done, form=form or done.form, proof=proof)

    def place(self, path: str, node: ir.Node, index: int) -> Location:
        """Return where a node stood in the source; `path` and `index` say where it stands now."""
        return place_of(node) or self.places.get(node) or Location.of(path, node, index)


def token_count(model: ir.Model) -> ir.Value:
    """Return a new input for the tokens before a step: `past_length`, int64 of shape (1).

    It is not part of the graph yet.
    """
    return ir.Value(
        name=Names(model).fresh("past_length"),
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape([1]),
    )


def without_capacity(past: str | None, place: Location) -> Unraised:
    """Return the refusal of a cache that grows at a place, where no capacity was given."""
    text = f"`{past}` grows with every step, and no `--capacity` says how many rows it is for"
    return unraised(place, Unproven("growing-cache", text))


def unraised(place: Location, missing: Unproven | MalformedNode) -> Unraised:
    """Return the refusal of a candidate at a place."""
    assumption = missing.assumption if isinstance(missing, Unproven) else None
    return Unraised(place, missing.code, missing.message, assumption)


def raised(
    place: Location,
    pattern: str,
    axis: int,
    mode: Mode,
    values: Sequence[ir.Value | None],
    proof: Iterable[str],
    assumed: Iterable[str] = (),
) -> Raised:
    """Return the report of an update; `values` are its past, new rows, starts and present."""
    past, update, starts, present = (None if value is None else value.name for value in values)
    granted = tuple(assumed)
    proof = (*proof, *(f"assumed: {text}" for text in granted))
    names = past or "", update or "", starts, present or ""
    return Raised(place, pattern, axis, mode, *names, proof, granted)


def scopes_of(model: ir.Model) -> dict[ir.Graph, ScopedValues]:
    """Return the scope of each graph of the model but functions, to build nodes in."""
    found: dict[ir.Graph, ScopedValues] = {}
    names = Names(model)

    def add(graph: ir.Graph, parent: ScopedValues | None) -> None:
        scope = found[graph] = ScopedValues(graph, parent, names)
        for node in graph:
            for _, body in subgraphs(node):
                add(body, scope)

    add(model.graph, None)
    return found


# Sizes that a source runs with, for the comparison of both models.


_SIZE = 2
"""Size of a dimension that only has to be equal to another."""

Pair = tuple[Dim, Dim]


def implied(sizes: Iterable[Iterable[Expr]]) -> Iterable[Pair]:
    """Yield the dimensions that are equal in every run, from what is known of each size."""
    for ways in sizes:
        dims = [dim for way in ways if (dim := dim_of(way)) is not None]
        yield from ((dims[0], dim) for dim in dims[1:])


def dims_to_run(pairs: Iterable[Pair], chosen: Mapping[str, int]) -> dict[str, int]:
    """Return a size for each name that must be equal to another name or to a number.

    Drawn apart, they would make the source fail, or break an assumption.

    Empty where the pairs contradict each other: then nothing runs.
    """
    distinct = [(a, b) for a, b in pairs if a != b]
    try:
        equal = SizeEqualities([*distinct, *chosen.items()])
    except ValueError:
        return {}
    found: dict[str, int] = {}
    for name in {dim for pair in distinct for dim in pair if isinstance(dim, str)}:
        if name.isidentifier():
            known = equal.of_dim(name)
            number = None if known is None else known.number
            found[name] = _SIZE if number is None else number
    return found


def dim_of(size: Expr) -> Dim:
    """Return a size as a number or a name; None if it is neither."""
    if size.number is not None:
        return size.number
    return size.atom.name if isinstance(size.atom, Dimension) else None


# Sizes of a raised model, fixed for good: what `--dim` and `--static` ask of `raise`.


Shapes = Mapping[str, Sequence[Dim]]


def declared_shapes(model: ir.Model) -> Shapes:
    """Return the shape of each input and output of a model that declares one, by name."""
    ports = (*model.graph.outputs, *model.graph.inputs)
    shapes = ((value.name or "", dims_of(value)) for value in ports)
    return {name: dims for name, dims in shapes if dims is not None}


def head_sizes(model: ir.Model) -> dict[str, int]:
    """Return the sizes of heads that caches have by a name, where weights say them."""
    return {
        name: size
        for cache in find_caches(model, prove=False)
        for name, size in zip(dims_of(cache.past_value) or (), cache.shape or (), strict=False)
        if isinstance(name, str) and name.isidentifier() and isinstance(size, int)
    }


def fix_raised(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome, before: Shapes
) -> None:
    """Fix the sizes of a raised model, in place.

    The name of an axis that grew stays symbolic where other inputs have it: with a number every
    step would begin behind the same rows. What stands in the way is `blocked` in the outcome.
    `before` has the shapes of the inputs and outputs of the source.
    """
    if not (outcome.raised or outcome.attention or outcome.contrib):
        return
    after = declared_shapes(model)
    # The names of sizes that a cache had where it has a capacity now.
    pasts = _replaced(lambda cache: cache.past, before, after, outcome)
    grown = {name for old, new in pasts if old != new for name in names_in(old)}
    # An input as long as a cache after a step, such as a mask of genai, gets as many columns.
    presents = _replaced(lambda cache: cache.present, before, after, outcome)
    known = {n: new for n, new in presents if n.isidentifier() and isinstance(new, int)}
    told = {**(known if settings.static else {}), **settings.dims}
    dims = {name: size for name, size in told.items() if name not in grown}
    fixed = fix_sizes(model, dims, one_opset=True)
    outcome.blocked += fixed.refused
    outcome.notes += [*folded_note(fixed), *fixed.notes]
    if settings.static and fixed.inference is not None:
        if outcome.stuck and outcome.grown is not None:  # no number for the columns of a mask helps
            for value in model.graph.inputs:
                sizes = zip(dims_of(value) or (), outcome.grown.shapes.get(value, ()), strict=False)
                grown |= {d for d, n in sizes if isinstance(d, str) and n is not None and n < 0}
        found = dynamic_parts(model, fixed.inference, growing=grown, stuck=outcome.stuck)
        if any(one.code == "symbolic-dimension" for one in found):
            outcome.notes.clear()  # what could not be fixed without these sizes says nothing
        outcome.blocked += found


def _replaced(
    names: Callable[[RaisedCache], str], before: Shapes, after: Shapes, outcome: RaiseOutcome
) -> Iterator[tuple[str, Dim]]:
    """Yield the sizes of pasts or presents that have a name before, with those of afterwards."""
    for name in map(names, outcome.caches):
        pairs = zip(before.get(name, ()), after.get(name, ()), strict=False)
        yield from ((old, new) for old, new in pairs if isinstance(old, str))
