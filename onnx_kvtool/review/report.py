"""The report of `kvtool diff`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from types import GenericAlias
from typing import Any, Literal

from onnx_kvtool.analysis.inspection import NodeFacts
from onnx_kvtool.core.choices import DiffPart
from onnx_kvtool.core.diagnostic import AT_NODE, Location
from onnx_kvtool.core.record import Form, Key, Record, filled, read
from onnx_kvtool.core.reporting import Shown


@dataclass(frozen=True, slots=True)
class Change(Record):
    """Something that has a name and changed.

    Attributes:
        place: `input` or `output` for the interface, the path of a graph, or "" for the
            model.
        name: Name.
        what: The property that changed; `added` or `removed` for a whole part.
        old: The old value; None if there was none.
        new: The new value; None if there is none.
    """

    place: str
    name: str
    what: str
    old: Any
    new: Any

    @classmethod
    def whole(cls, place: str, name: str, shown: str, *, is_added: bool) -> Change:
        """Return the change for an added or removed part."""
        if is_added:
            return cls(place, name, "added", None, shown)
        return cls(place, name, "removed", shown, None)


@dataclass(frozen=True, slots=True)
class NodeChange(Record):
    """One fact of a node that both models have.

    Attributes:
        location: Where it stands in the new model.
        what: `op`, the name of an attribute, `input 0`, `output 0`, `doc_string`, `metadata KEY`.
        old: The old value; None if there was none.
        new: The new value; None if there is none.
    """

    location: Location
    what: str
    old: str | None
    new: str | None

    JSON = (AT_NODE, ...)


@dataclass(frozen=True, slots=True)
class Replacement(Record):
    """Nodes that replace others: the same nodes read their results.

    Attributes:
        removed: Replaced nodes of the old model; the last one makes the replaced result.
        added: Nodes of the new model that replace them.
        is_shared: Whether several replacements share these nodes.
    """

    removed: tuple[NodeFacts, ...]
    added: tuple[NodeFacts, ...]
    is_shared: bool = False

    JSON = ("removed", "added", Key("is_shared", "shared"))


@dataclass(frozen=True, slots=True)
class WeightChange(Record):
    """An initializer that changed.

    Attributes:
        graph: Path of the graph.
        name: Name in the new model; in the old one for a removed weight.
        what: `values`, `dtype`, `shape`, `form` (an initializer became a Constant or the reverse),
            `added` or `removed`.
        old: Old values, digest, type or shape; None if there was none.
        new: New values, digest, type or shape; None if there is none.
        max_abs_diff: Largest absolute difference of two elements; None if not computed or not a
            number.
        max_rel_diff: Largest difference relative to the old element.
        changed: Number of elements that differ; None if not computed.
        elements: Number of elements.
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

    JSON = (..., Key("changed", "changed_elements"), "elements")


@dataclass(frozen=True, slots=True)
class Rename(Record):
    """A new name of a part that is otherwise the same.

    Attributes:
        kind: `value`, `node`, `initializer`, `input`, `output`, `dimension` or `graph`.
        graph: Path of the graph; "" for dimensions.
        old: The old name.
        new: The new name.
    """

    kind: Literal["value", "node", "initializer", "input", "output", "dimension", "graph"]
    graph: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class NodeChanges(Record):
    """Changes of nodes.

    Attributes:
        added: Added nodes.
        removed: Removed nodes.
        changed: Changed properties of nodes that both models have.
        replaced: Nodes that replace others; also listed as added and removed.
    """

    added: list[NodeFacts]
    removed: list[NodeFacts]
    changed: list[NodeChange]
    replaced: list[Replacement]


@dataclass(frozen=True, slots=True)
class WeightChanges(Record):
    """Changes of weights.

    Attributes:
        same: Number of unchanged weights.
        changed: The changed weights.
    """

    same: int
    changed: list[WeightChange]


@dataclass(frozen=True, slots=True)
class OperatorCount(Record):
    """Number of nodes of one operator.

    Attributes:
        old: Count in the old model.
        new: Count in the new model.
    """

    old: int
    new: int


_VIEW = """One change among {}.

Attributes:
    {}: `input` or `output`, the path of a graph, or "" for the model.
    {}: Name of the changed part.
    what: The property that changed; `added` or `removed` for a whole part.
    old: The old value; None if there was none.
    new: The new value; None if there is none.
"""


def _section(title: str, place: str, name: str) -> Form:
    """Return the JSON form of the changes of one section, with its keys for place and name."""
    keys = [(place, str), (name, str), ("what", str), ("old", Any), ("new", Any)]
    view = make_dataclass(title, keys, frozen=True)
    view.__doc__ = _VIEW.format(title.lower(), place, name)

    def of(changes: Sequence[Change]) -> list[Any]:
        return [view(c.place, c.name, c.what, c.old, c.new) for c in changes]

    def back(views: Sequence[Any]) -> list[Change]:
        return [Change(getattr(v, place), getattr(v, name), v.what, v.old, v.new) for v in views]

    return Form(GenericAlias(list, (view,)), of, back)


_OPERATORS = Form(
    dict[str, OperatorCount],
    lambda ops: {op: OperatorCount(*counts) for op, counts in ops.items()},
    lambda ops: {op: (count.old, count.new) for op, count in ops.items()},
)


@dataclass(slots=True)
class DiffReport(Shown):
    """The changes between two models.

    Attributes:
        old: Path of the old model; "" for one in memory.
        new: Path of the new model; "" for one in memory.
        opsets: Opset versions by domain, those of functions included.
        interface: Inputs and outputs: `added`, `removed`, `dtype`, `shape`, `position`, `default`.
        metadata: Metadata of the model, its graphs and its functions.
        caches: Changes of caches.
        ops: Operators whose count changed.
        functions: Added and removed functions, and changed signatures.
        added: Added nodes, without those in `replaced`.
        removed: Removed nodes, without those in `replaced`.
        changed: Changed facts of nodes.
        replaced: Nodes that replace others.
        weights_same: Number of unchanged initializers.
        weights: The changed weights.
        values: Changed declarations of values within graphs.
        renamed: Renamed parts that are otherwise the same.
        storage: Where unchanged weights are stored; this makes no model different.
        file: Change of the file as a whole, from git; `unreadable` if one version is no model, so
            nothing was compared.
        caches_same: Number of unchanged caches.
        notes: What kvtool did not compare, and why.
        fail_on: The parts whose differences count for the exit code; None for all.

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
    file: Literal["changed", "added", "removed", "unreadable"] = "changed"
    notes: list[str] = field(default_factory=list)
    fail_on: tuple[DiffPart, ...] | None = None

    JSON = (
        "old",
        "new",
        "status",
        "differs",
        Key("opsets", form=_section("Opsets", "graph", "domain")),
        Key("interface", form=_section("Interface", "side", "name")),
        Key("metadata", form=_section("Metadata", "graph", "key")),
        Key("caches", form=_section("Caches", "graph", "past")),
        Key("ops", form=_OPERATORS),
        Key("functions", form=_section("Functions", "graph", "function")),
        "nodes",
        Key("weight_changes", "weights"),
        Key("values", form=_section("Values", "graph", "value")),
        "renamed",
        Key("storage", form=_section("Storage", "graph", "name")),
        "caches_same",
        "file",
        "notes",
        Key("fail_on", is_optional=True),
    )

    @property
    def status(self) -> Literal["same", "different"]:
        """`same` if at most the storage of weights changed."""
        is_same = self.file == "changed" and not self.differs
        return "same" if is_same else "different"

    @property
    def outcome(self) -> str:
        """The status in one word, or what happened to the whole file."""
        return self.status if self.file == "changed" else self.file

    @property
    def differs(self) -> list[DiffPart]:
        """The parts that differ. A renamed input or output counts as `interface`."""
        outside = [r for r in self.renamed if r.kind in ("input", "output")]
        nodes = (self.functions, self.added, self.removed, self.changed, self.replaced, self.values)
        parts: dict[DiffPart, bool] = {
            "interface": bool(self.interface or outside),
            "caches": bool(self.caches),
            "opset": bool(self.opsets),
            "metadata": bool(self.metadata),
            "nodes": any(nodes),
            "weights": bool(self.weights),
            "names": len(self.renamed) > len(outside),
        }
        return [part for part, is_different in parts.items() if is_different]

    @property
    def exit_code(self) -> int:
        """Exit code of the command line without `--exit-zero`."""
        if self.fail_on is None or self.file != "changed":
            return int(self.status != "same")
        return int(not {*self.fail_on}.isdisjoint(self.differs))

    @property
    def nodes(self) -> NodeChanges:
        """Changes of nodes."""
        added = [*self.added, *(node for r in self.replaced for node in r.added)]
        removed = [*self.removed, *(node for r in self.replaced for node in r.removed)]
        return NodeChanges(added, removed, self.changed, self.replaced)

    @property
    def weight_changes(self) -> WeightChanges:
        """Changes of weights."""
        return WeightChanges(self.weights_same, self.weights)

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> DiffReport:
        """Return the report that an object describes."""
        nodes = read(NodeChanges, data.get("nodes"))
        weights = read(WeightChanges, data.get("weights"))
        # Those that replace others come last.
        came = len(nodes.added) - sum(len(r.added) for r in nodes.replaced)
        went = len(nodes.removed) - sum(len(r.removed) for r in nodes.replaced)
        report: DiffReport = filled(
            cls,
            data,
            added=nodes.added[:came],
            removed=nodes.removed[:went],
            changed=nodes.changed,
            replaced=nodes.replaced,
            weights_same=weights.same,
            weights=weights.changed,
        )
        return report
