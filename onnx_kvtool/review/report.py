"""What `kvtool diff` answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from onnx_kvtool.core.location import Location
from onnx_kvtool.core.shown import Shown

__all__ = [
    "Change",
    "DiffReport",
    "NodeChange",
    "NodeFacts",
    "Rename",
    "Replacement",
    "WeightChange",
]

Text = str | int | None


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has a name and changed.

    Attributes:
        place: What it belongs to: `input` or `output` for the interface, the path of a graph, or
            "" for the model.
        name: Its name.
        what: Which fact of it changed; `added` and `removed` for the whole.
        old: The fact before; None where there was none.
        new: The fact now; None where there is none.
    """

    place: str
    name: str
    what: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node that one of the models does not have.

    Attributes:
        location: Where it stands.
        inputs: Names of what it reads; "" for an input left out.
        outputs: Names of what it makes.
    """

    location: Location
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {
            "graph": self.location.graph,
            "node": self.location.node_label,
            "op": self.location.op,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
        }


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One fact of a node that both models have.

    Attributes:
        location: Where it stands in the new model.
        what: `op`, the name of an attribute, `input 0`, `output 0`, `doc_string`, `metadata KEY`.
        old: The fact before; None where there was none.
        new: The fact now; None where there is none.
    """

    location: Location
    what: str
    old: str | None
    new: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {
            "graph": self.location.graph,
            "node": self.location.node_label,
            "op": self.location.op,
            "what": self.what,
            "old": self.old,
            "new": self.new,
        }


@dataclass(frozen=True, slots=True)
class Replacement:
    """Nodes that came in the place of others: what they make is read where that of those was.

    Attributes:
        removed: The nodes of the old model, the one whose result is replaced last.
        added: The nodes of the new one.
        is_shared: Whether these are the nodes that lead to several replacements.
    """

    removed: tuple[NodeFacts, ...]
    added: tuple[NodeFacts, ...]
    is_shared: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the nodes by name."""
        return {
            "removed": [node.to_json() for node in self.removed],
            "added": [node.to_json() for node in self.added],
            "shared": self.is_shared,
        }


@dataclass(frozen=True, slots=True)
class WeightChange:
    """An initializer that changed.

    Attributes:
        graph: Path of its graph.
        name: Its name in the new model; in the old one if it was removed.
        what: `values`, `dtype`, `shape`, `form` (an initializer became a Constant or the reverse),
            `added` or `removed`.
        old: Values, digest, type or shape before; None where there was none.
        new: The same now; None where there is none.
        max_abs_diff: The largest difference of two elements; None when it was not looked for or
            there is no number for it.
        max_rel_diff: The largest difference relative to the old element.
        changed: How many elements differ; None when that was not looked for.
        elements: How many there are.
    """

    graph: str
    name: str
    what: str
    old: str | None
    new: str | None
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None
    changed: int | None = None
    elements: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {
            "graph": self.graph,
            "name": self.name,
            "what": self.what,
            "old": self.old,
            "new": self.new,
            "max_abs_diff": self.max_abs_diff,
            "max_rel_diff": self.max_rel_diff,
            "changed_elements": self.changed,
            "elements": self.elements,
        }


@dataclass(frozen=True, slots=True)
class Rename:
    """A new name of what is otherwise the same.

    Attributes:
        kind: `value`, `node`, `initializer`, `input`, `output`, `dimension` or `graph`.
        graph: Path of the graph; "" for dimensions.
        old: The name before.
        new: The name now.
    """

    kind: Literal["value", "node", "initializer", "input", "output", "dimension", "graph"]
    graph: str
    old: str
    new: str

    def to_json(self) -> dict[str, Any]:
        """Return the names with what they are of."""
        return {"kind": self.kind, "graph": self.graph, "old": self.old, "new": self.new}


@dataclass(slots=True)
class DiffReport(Shown):
    """What changed between two models; empty lists where nothing did.

    Attributes:
        old: Path of the one, "" for a model in memory.
        new: Path of the other.
        opsets: Versions of domains, by the name of the domain; of functions as well.
        interface: Inputs and outputs: `added`, `removed`, `dtype`, `shape`, `position`, `default`.
        metadata: What is said of the model, its graphs and its functions.
        caches: Facts of caches.
        ops: Operators of which there are more or fewer, with the numbers.
        functions: Functions that were added or removed, and their signatures.
        added: Nodes that came, but for those in `replaced`.
        removed: Nodes that went, but for those in `replaced`.
        changed: Facts of nodes.
        replaced: Nodes that came in the place of others.
        weights_same: How many initializers are the same.
        weights: The others.
        values: What is declared of values within graphs.
        renamed: New names of what is otherwise the same.
        storage: Where weights lie that are the same; this makes no model different.
        caches_same: How many caches are the same in every fact.
        notes: What was not compared, and why.

    Examples:
        >>> lowered, _ = kv.lower("decoder.onnx", opset=18, verify=False)
        >>> report = kv.diff("decoder.onnx", lowered)
        >>> report.status, report.opsets[0].old, report.opsets[0].new, report.ops["TensorScatter"]
        ('different', 24, 18, (4, 0))
    """

    old: str
    new: str
    opsets: list[Change] = field(default_factory=list)
    interface: list[Change] = field(default_factory=list)
    metadata: list[Change] = field(default_factory=list)
    caches: list[Change] = field(default_factory=list)
    ops: dict[str, tuple[int, int]] = field(default_factory=dict)
    functions: list[Change] = field(default_factory=list)
    added: list[NodeFacts] = field(default_factory=list)
    removed: list[NodeFacts] = field(default_factory=list)
    changed: list[NodeChange] = field(default_factory=list)
    replaced: list[Replacement] = field(default_factory=list)
    weights_same: int = 0
    weights: list[WeightChange] = field(default_factory=list)
    values: list[Change] = field(default_factory=list)
    renamed: list[Rename] = field(default_factory=list)
    storage: list[Change] = field(default_factory=list)
    caches_same: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def status(self) -> Literal["same", "different"]:
        """`same` when nothing but the storage of weights changed."""
        return "different" if any(self._differences()) else "same"

    def _differences(self) -> tuple[Any, ...]:
        return (
            self.opsets,
            self.interface,
            self.metadata,
            self.caches,
            self.functions,
            self.added,
            self.removed,
            self.changed,
            self.replaced,
            self.weights,
            self.values,
            self.renamed,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes, without the header."""
        added = [*self.added, *(node for r in self.replaced for node in r.added)]
        removed = [*self.removed, *(node for r in self.replaced for node in r.removed)]
        return {
            "old": self.old,
            "new": self.new,
            "status": self.status,
            "opsets": [_named(c, "domain", "graph") for c in self.opsets],
            "interface": [_named(c, "name", "side") for c in self.interface],
            "metadata": [_named(c, "key", "graph") for c in self.metadata],
            "caches": [_named(c, "past", "graph") for c in self.caches],
            "ops": {op: {"old": a, "new": b} for op, (a, b) in self.ops.items()},
            "functions": [_named(c, "function", "graph") for c in self.functions],
            "nodes": {
                "added": [node.to_json() for node in added],
                "removed": [node.to_json() for node in removed],
                "changed": [change.to_json() for change in self.changed],
                "replaced": [replacement.to_json() for replacement in self.replaced],
            },
            "weights": {
                "same": self.weights_same,
                "changed": [change.to_json() for change in self.weights],
            },
            "values": [_named(c, "value", "graph") for c in self.values],
            "renamed": [rename.to_json() for rename in self.renamed],
            "storage": [_named(c, "name", "graph") for c in self.storage],
            "notes": list(self.notes),
        }


def _named(change: Change, name: str, place: str) -> dict[str, Any]:
    return {
        place: change.place,
        name: change.name,
        "what": change.what,
        "old": change.old,
        "new": change.new,
    }
