"""What every stage of `raise` is given, and where it says what it did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

import onnx_ir as ir

from onnx_kvtool.analysis.attention.masks import MaskFunction
from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.choices import NATIVE_OPSET, AttentionChoice, AttentionForm, ContribChoice
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.origin import origin
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.emit.emitter import ScopedValues
from onnx_kvtool.emit.names import Names
from onnx_kvtool.rewrite.raise_report import RaiseReport, Unraised
from onnx_kvtool.rewrite.raising.assumptions import Assumptions
from onnx_kvtool.rewrite.raising.in_functions import place_of
from onnx_kvtool.symbolic.dimensions import Dim
from onnx_kvtool.symbolic.expressions import Expr

__all__ = [
    "GROWN",
    "LONGER",
    "Grown",
    "RaiseOutcome",
    "RaiseSettings",
    "Size",
    "WindowRead",
    "scopes_of",
    "token_count",
    "without_capacity",
]


@dataclass(frozen=True, slots=True)
class RaiseSettings:
    """What a model is to be raised to.

    Attributes:
        opset: Version of the default domain of the result, at least 24; a later one stays.
        assumptions: What may be taken for granted.
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


Size = int | None
"""A size as a number, `GROWN`, `LONGER`, or None for any other."""

GROWN = -1
"""In the place of the size of an axis: the rows in use."""

LONGER = -2
"""That of the last axis of one input, at least as long as the rows in use that are looked up."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What is known of values while caches still grow.

    Attributes:
        shapes: The sizes of each value of the main graph, in numbers.
        types: Their element types.
        dims: Sizes that the result has in place of names.
        caches: The cache of which a value is the rows in use.
    """

    shapes: Mapping[ir.Value, tuple[Size, ...]]
    types: Mapping[ir.Value, ir.DataType]
    dims: Mapping[str, int]
    caches: Mapping[ir.Value, ir.Value] = field(default_factory=dict)

    def with_caches(self, cut: Iterable[tuple[ir.Value, ir.Value, ir.Value]]) -> Grown:
        """Return the same once caches have a capacity.

        Args:
            cut: What held the rows in use before, what does now, and the cache that it is cut of.
        """
        shapes, types, caches = dict(self.shapes), dict(self.types), dict(self.caches)
        for old, rows, cache in cut:
            if old in shapes:
                shapes[rows], caches[rows] = shapes[old], cache
                if old in types:
                    types[rows] = types[old]
        return Grown(shapes, types, self.dims, caches)


@dataclass(frozen=True, slots=True)
class WindowRead:
    """The rows that a model reads of a window: those from before a step in order, and new ones.

    Attributes:
        present: The circular cache after the step, (..., W, ...).
        new: The new rows.
        count: How many they are, or what that is called; None where nothing says it.
        gather: The node that takes the rows from before the step.
        order: Where these stand in the cache, oldest first: (min(P, W - 1),).
        length: P, the tokens before the step: (1,).
        axis: The axis of the rows.
        capacity: W.
    """

    present: ir.Value
    new: ir.Value
    count: Dim
    gather: ir.Node
    order: ir.Value
    length: ir.Value
    axis: int
    capacity: int


_DONE = ("raised", "caches", "attention", "contrib", "inputs_added")
"""What a report says was done."""


@dataclass(slots=True)
class RaiseOutcome(RaiseReport):
    """The report in the making, and what the stages and verification have to know besides.

    With anything in `blocked` the model is fit for nothing else.

    Attributes:
        positions: Values that are assumed to hold positions which count up by one.
        rotated: Windows that became circular caches.
        unpadded: Inputs that are assumed to be 1 throughout.
        is_in_range: Whether starts are assumed not to lie below 0.
        equal_dims: Dimensions that are equal in every run of the source, or are assumed to be.
        masks: Of each Attention that was written, what its mask holds and how many queries it has,
            where that is known.
        columns: Columns of inputs that say something of each key, where masks have fixed sizes.
        grown: Which values are as long as the rows in use, where all sizes are to be numbers.
        in_use: The rows in use after a step, (1,), where caches got a capacity.
        windows: What a model reads of windows that became circular caches, by the value that joins
            rows from before a step and new ones.
        places: Where nodes stood in the source, where an earlier stage may have moved them.
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
    places: Mapping[ir.Node, Location] = field(default_factory=dict)

    @staticmethod
    def of(model: ir.Model) -> RaiseOutcome:
        """Return the outcome of raising a model before anything was done to it."""
        opset = model.opset_imports.get("", 0)
        return RaiseOutcome(origin(model).path, None, opset, opset, model.ir_version)

    def report(self, path: str) -> RaiseReport:
        """Return what there is to say of the model at a path; nothing was raised if it is blocked.

        Args:
            path: What to call the model.
        """
        said = {one.name: getattr(self, one.name) for one in fields(RaiseReport)}
        if self.blocked:
            said |= {name: [] for name in _DONE}
        return RaiseReport(**{**said, "model": path})

    def tell(self, node: ir.Node, sentence: str, *, form: AttentionForm | None = None) -> None:
        """Add to the proof of an Attention that was written, and say what it reads, once."""
        place = self.places[node]
        for number, done in enumerate(self.attention):
            if done.location == place and sentence not in done.proof:
                proof = (*done.proof, sentence)
                self.attention[number] = replace(done, form=form or done.form, proof=proof)

    def place(self, path: str, node: ir.Node, index: int) -> Location:
        """Return where a node stood in the source.

        Args:
            path: The path of the graph in which it stands now.
            node: The node.
            index: Its position there.
        """
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
    missing = Unproven("growing-cache", text)
    return Unraised(place, missing.code, missing.message)


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
