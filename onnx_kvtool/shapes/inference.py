"""Types and shapes of all values of a model, with the reason for everything that is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.core.walk import nodes, values
from onnx_kvtool.model_io.model import origin
from onnx_kvtool.model_io.verbatim import VerbatimType
from onnx_kvtool.shapes.forward import Forward
from onnx_kvtool.shapes.onnx_inference import of_model, refusals
from onnx_kvtool.shapes.writing import Writer, graph_values
from onnx_kvtool.symbolic.broadcasting import Equality
from onnx_kvtool.symbolic.dimensions import Dims, shape_words
from onnx_kvtool.symbolic.expressions import Atom, Element, Expr, Extent, text, variable
from onnx_kvtool.symbolic.knowledge import Conflict, Knowledge, Lost


@dataclass(frozen=True, slots=True)
class UnknownValue(Record):
    """A value whose type or shape is partly unknown.

    In JSON, `node` and `op` are those of the node that lost it first.

    Attributes:
        location: The value and the node that makes it.
        shape: The known part of its shape; None if the rank is unknown.
        lost: The first value where the missing fact is unknown, and why.
    """

    location: Location
    shape: Dims | None
    lost: Lost

    JSON = (
        Key("location.value", "value"),
        Key("lost.location.node_label", "node"),
        Key("lost.location.op", "op"),
        Key("lost.why", "why"),
        Key("lost.code", "code"),
        Key("lost.location.value", "first"),
        Key("location.graph", "graph"),
        "shape",
        "location",
        "lost",
    )


@dataclass(slots=True)
class InferReport(Shown):
    """The inferred types and shapes of a model.

    Attributes:
        model: Path as given; `-` for standard input, "" for a model in memory.
        values: Number of values in the main graph and all bodies: inputs, and outputs of nodes.
        known_before: Values that the file declares fully, with a type and every size.
        known_after: Values that are fully known now. A size is known if it is a number or an
            expression over names that inputs of the model declare.
        unknown: The other values, in graph order.
        conflicts: Contradictions.
        equalities: Names, and expressions over names, with the same size.
        notes: Notes.
        output: Path of the written file; None if none.
        strict: Whether every value must be fully known.

    Examples:
        >>> _, report = kv.infer("decoder.onnx", dims={"batch": 2})
        >>> report.known_after == report.values, len(report.conflicts)
        (True, 0)
    """

    model: str
    values: int
    known_before: int
    known_after: int
    unknown: tuple[UnknownValue, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    equalities: tuple[Equality, ...] = ()
    notes: list[str] = field(default_factory=list)
    output: str | None = None
    strict: bool = False

    JSON = ("model", "output", ...)

    @property
    def failed(self) -> bool:
        """Whether there is a conflict or, where the report is strict, an unknown value."""
        return bool(self.conflicts) or (self.strict and bool(self.unknown))


class Inference(NamedTuple):
    """The inference of one model.

    Attributes:
        report: The report.
        run: The facts about the values of the model.
    """

    report: InferReport
    run: Forward

    def refuse_what_onnx_does(self) -> None:
        """Add conflicts for nodes that onnx's strict inference refuses, with the written types."""
        found = _refused(self.run, refusals(self.run.model))
        self.report.conflicts = (*self.report.conflicts, *found)

    def annotate(self, *, frozen: bool = False) -> None:
        """Write the inferred types and shapes on the values of the main graph and of bodies.

        An unknown size keeps its declaration, and so does a size of a graph output in names of
        inputs.

        Args:
            frozen: Whether values of one shape may share one object, which then cannot be edited.
        """
        writer = Writer(self.run, frozen=frozen)
        for value in self.run.values:
            writer.annotate(value)


def infer_model(
    model: ir.Model,
    dims: Mapping[str, int] | None = None,
    granted: Knowledge | None = None,
) -> Inference:
    """Infer the types and shapes of all values.

    Args:
        model: The model; values without a type get the inferred one, nothing else changes.
        dims: Values of symbolic dimensions, which replace the names.
        granted: What is known before, such as sizes that may be 0. A size in a Reshape counts as at
            least 1 without it.

    Raises:
        KvtoolError: If a part of the model has no written form.
    """
    told = of_model(model)
    # onnx takes every size in a Reshape to be at least 1.
    types = {} if granted is not None and granted.may_be_empty else told.types
    run = Forward(model, dims or {}, types)
    run.knowledge = granted or run.knowledge
    named = (value for value in graph_values(model.graph) if value.name)
    declared_known = sum(_is_declared(run, value) for value in named)
    run.run()
    if told.refused is not None:
        run.knowledge.conflicts += _refused(run, refusals(model, told.refused))
    first: dict[Atom, Lost] = {}
    unknown = []
    for value, place in run.values.items():
        lost = _lost(run, value, place, first)
        if lost is not None:
            unknown.append(UnknownValue(place, _shape_words(run, value), lost))
    report = InferReport(
        model=origin(model).name,
        values=len(run.values),
        known_before=declared_known,
        known_after=len(run.values) - len(unknown),
        unknown=tuple(unknown),
        conflicts=tuple(run.knowledge.conflicts),
        equalities=tuple(run.knowledge.equalities),
        notes=[] if told.failure is None else [told.failure],
    )
    # Where such a size is 0, Reshape would copy another one.
    report.notes += [
        f"`{text(size)}` is taken to be at least 1: where it is 0, {place} copies another size"
        for size, place in run.knowledge.assumed.items()
    ]
    return Inference(report, run)


@contextmanager
def inferred(model: ir.Model) -> Iterator[Inference]:
    """Write all inferred types and shapes on the values of a model, for the block."""
    before = [(value, value.type, value.shape) for value in values(model)]
    found = infer_model(model)
    found.annotate(frozen=True)
    try:
        yield found
    finally:
        for value, type_, shape in before:
            value.type, value.shape = type_, shape


def _refused(run: Forward, refused: Iterable[tuple[ir.Node, str]]) -> list[Conflict]:
    """Return conflicts of nodes that onnx rejects, if no other conflict names them."""
    known = {(c.location.graph, c.location.index) for c in run.knowledge.conflicts}
    found: dict[tuple[str, int | None], Conflict] = {}
    places = {node: (path, index) for path, index, node in nodes(run.model)}
    for node, why in refused:
        path, index = places[node]
        if (path, index) not in known:
            message = f"onnx's inference refuses `{node.op_type}`: {why}"
            place = Location.of(path, node, index)
            found.setdefault((path, index), Conflict("onnx-refuses", place, "", "", message))
    return list(found.values())


def _is_declared(run: Forward, value: ir.Value) -> bool:
    type_, shape = value.type, value.shape
    if type_ is None or isinstance(type_, VerbatimType):
        return isinstance(type_, VerbatimType)
    if not isinstance(type_, ir.TensorType):
        return True
    if shape is None or type_.dtype == ir.DataType.UNDEFINED:
        return False
    return all(
        isinstance(dim, int) or (dim.value is not None and run.is_known(run.size(dim.value)))
        for dim in shape
    )


def _lost(run: Forward, value: ir.Value, place: Location, first: dict[Atom, Lost]) -> Lost | None:
    """Return why a value is not fully known; None when it is."""
    knowledge = run.knowledge
    type_ = knowledge.types.get(value)
    if type_ is not None and not isinstance(type_, ir.TensorType):
        return None
    shape = knowledge.shapes.get(value)
    if shape is None:
        return knowledge.lost.get(value) or Lost(place, "no-rule", "its type and shape are unknown")
    for found in () if run.is_complete(shape) else shape:
        size = knowledge.equalities.resolved(found, unnamed_only=True)
        if not run.is_known(size):
            return _first(run, size, place, first)
    if type_ is None or type_.dtype == ir.DataType.UNDEFINED:
        return knowledge.lost.get(value) or Lost(place, "unknown-type", "its type is unknown")
    return None


def _first(run: Forward, size: Expr, place: Location, first: dict[Atom, Lost]) -> Lost:
    """Return the first lost fact that makes a size unknown."""
    bad = [
        atom
        for atom in size.atoms()
        if isinstance(atom, Extent | Element) or not (atom.parts or run.is_known(variable(atom)))
    ]
    if not bad:
        return Lost(place, "no-expression", f"`{size}` is no expression that a file can store")
    # By text, because terms have no order.
    kinds = {Extent: 0, Element: 1}
    atom = min(bad, key=lambda atom: (kinds.get(type(atom), 2), str(variable(atom))))
    found = run.knowledge.lost_sizes.get(atom)
    return found or first.setdefault(atom, Lost(place, *_reason(atom)))


def _reason(atom: Atom) -> tuple[str, str]:
    if isinstance(atom, Element):
        return "data-dependent", f"it depends on the elements of `{atom.value.name}`"
    if isinstance(atom, Extent):
        return "unknown-input", f"a size of `{atom.value.name}` is unknown"
    name = getattr(atom, "name", "")
    return "foreign-name", f"`{name}` is a name that no input declares"


def _shape_words(run: Forward, value: ir.Value) -> Dims | None:
    shape = run.knowledge.shapes.get(value)
    known = run.knowledge.equalities
    sizes = (known.resolved(size, unnamed_only=True) for size in shape or ())
    return None if shape is None else shape_words(tuple(sizes))
