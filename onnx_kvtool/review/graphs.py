"""Differences of two graphs and their bodies: nodes, initializers, names, declarations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeVar

import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.domains import operator_label
from onnx_kvtool.review.digests import Digests
from onnx_kvtool.review.matching import (
    Matcher,
    Pairs,
    pair_initializers,
    shown_content,
    weight_changes,
)
from onnx_kvtool.review.report import Change, DiffReport, NodeChange, Rename, WeightChange
from onnx_kvtool.review.side import Content, Declared, Scope, Side, declared, is_undefined

_Changed = Callable[[str, str | None, str | None], None]
"""Reports a changed fact of a node."""


ValuePairs = list[tuple[ir.Value, ir.Value]]
Ends = tuple[ValuePairs, ValuePairs]
"""Pairs of inputs and pairs of outputs of two graphs."""


def by_position(old: ir.Graph | ir.Function, new: ir.Graph | ir.Function) -> Ends:
    """Return the pairs of bodies and functions."""
    return (
        list(zip(old.inputs, new.inputs, strict=False)),
        list(zip(old.outputs, new.outputs, strict=False)),
    )


@dataclass(slots=True)
class GraphComparison:
    """Compares graphs of two models, one after another, and writes into a report.

    Attributes:
        old: The old model.
        new: The new model.
        report: Gets the differences, except for added and removed nodes.
        digests: Not None to measure how much weights differ.
        nodes: Pairs of nodes, of all graphs compared so far.
        values: The old value of each new input and initializer.
        added: New nodes without a pair, in the order of the graphs.
        removed: Old nodes without a pair.
        declarations: Place, new value, and both declarations, for each compared value.
        rewired: Old and new value at the same place of a reader, if a node without a pair makes one
            of them; None for a value that has a pair.
        moved: Contents of Constants that have become initializers, or the reverse.
    """

    old: Side
    new: Side
    report: DiffReport
    digests: Digests | None
    nodes: Pairs[ir.Node] = field(default_factory=Pairs)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    added: list[ir.Node] = field(default_factory=list)
    removed: list[ir.Node] = field(default_factory=list)
    declarations: list[tuple[str, ir.Value, Declared, Declared]] = field(default_factory=list)
    rewired: list[tuple[ir.Value | None, ir.Value | None]] = field(default_factory=list)
    moved: set[Content | None] = field(default_factory=set)

    def same_value(self, old: ir.Value | None, new: ir.Value | None) -> bool:
        """Return whether two values are a pair by now."""
        if old is None or new is None:
            return old is new
        if self.values.get(new) is old:
            return True
        one, other = old.producer(), new.producer()
        if one is not None and self.nodes.new.get(one) is other:
            return old.index() == new.index()
        held = self.old.content(old)
        if held is not None:
            return held == self.new.content(new)
        return is_undefined(old) and is_undefined(new) and old.name == new.name

    def compare(
        self,
        path: str,
        old: ir.Graph,
        new: ir.Graph,
        ends: Ends,
        owners: tuple[ir.Node, ir.Node] | None = None,
    ) -> None:
        """Compare two graphs."""
        inputs, outputs = ends
        self.values.update({b: a for a, b in inputs})
        scopes = Scope(old), Scope(new)
        self._hash(scopes, ends, owners)
        Matcher(*scopes, self.nodes, self.same_value).run()
        self._weights(path, scopes)
        for value, other in inputs:
            self.declare(path, value, other)
        for node in old:
            pair = self.nodes.new.get(node)
            if pair is not None:
                self._node(path, node, pair)
            elif not self._was_moved(node, self.old):
                self.removed.append(node)
        free = self.nodes.free(new)
        self.added += (node for node in free if not self._was_moved(node, self.new))
        for value, other in outputs:
            if not self.same_value(value, other):
                names = _named(value, other)
                change = Change("output", other.name or "", "source", *names)
                self._rewired(value, other, change)

    def _hash(
        self,
        scopes: tuple[Scope, Scope],
        ends: Ends,
        owners: tuple[ir.Node, ir.Node] | None,
    ) -> None:
        for place, (side, scope) in enumerate(zip((self.old, self.new), scopes, strict=True)):
            labels: dict[ir.Value, int] = {}
            for value in side.captured(owners[place]) if owners else ():
                known = value if place == 0 else self._old_of(value)
                labels[value] = hash(("outer", id(known or value)))
            for value in scope.graph.inputs:
                labels[value] = hash(("input", str(value.type), str(value.shape)))
            for number, pair in enumerate(ends[0]):
                labels[pair[place]] = hash(("input", number))
            outputs: dict[ir.Value, list[Hashable]] = {}
            for number, pair in enumerate(ends[1]):
                outputs.setdefault(pair[place], []).append(number)
            side.hash_scope(scope, labels, outputs)

    def _old_of(self, new: ir.Value) -> ir.Value | None:
        known = self.values.get(new)
        node = new.producer()
        if known is not None or node is None:
            return known
        old = self.nodes.old.get(node)
        place = new.index()
        if old is None or place is None or place >= len(old.outputs):
            return None
        return old.outputs[place]

    def _weights(self, path: str, scopes: tuple[Scope, Scope]) -> None:
        graphs = scopes[0].graph, scopes[1].graph
        found = pair_initializers(self.old, self.new, graphs, self.nodes)
        self.values.update(found.old)
        constants = [
            {side.content(n.outputs[0]) for n in scope.nodes if self._lone(n)}
            for side, scope in zip((self.old, self.new), scopes, strict=True)
        ]
        for name, value in graphs[0].initializers.items():
            other = found.new.get(value)
            if value.is_graph_input():
                continue
            if other is None:
                self._one_sided(path, name, value, self.old, constants[1])
                continue
            changes = weight_changes(path, value, other, (self.old, self.new), self.digests)
            self.report.weights.extend(changes)
            self.report.weights_same += not changes
            self.rename("initializer", path, value, other)
            self._remarks(path, value, other)
        for name, value in graphs[1].initializers.items():
            if not (value in found.old or value.is_graph_input()):
                self._one_sided(path, name, value, self.new, constants[0])

    def _one_sided(
        self, path: str, name: str, value: ir.Value, side: Side, others: set[Content | None]
    ) -> None:
        """Report an initializer that only one model has."""
        is_added = side is self.new
        kind, held = side.content(value) or ("", "")
        facts: list[str | None] = [f"{kind} {shown_content(held)}", None]
        what = "added" if is_added else "removed"
        if held and (kind, held) in others:
            what, facts = "form", ["initializer", "Constant"]
            self.moved.add((kind, held))
        old, new = reversed(facts) if is_added else facts
        self.report.weights.append(WeightChange(path, name, what, old, new))

    def _lone(self, node: ir.Node) -> bool:
        is_constant = node.op_type == "Constant" and len(node.outputs) == 1
        return is_constant and bool(self.nodes.free([node]))

    def _was_moved(self, node: ir.Node, side: Side) -> bool:
        """Return whether a Constant has become an initializer, or the reverse."""
        return bool(self.moved) and self._lone(node) and side.content(node.outputs[0]) in self.moved

    def _node(self, path: str, old: ir.Node, new: ir.Node) -> None:
        place = self.new.place(new)

        def changed(what: str, before: str | None, after: str | None) -> None:
            self.report.changed.append(NodeChange(place, what, before, after))

        if (a := _operator(old)) != (b := _operator(new)):
            changed("op", a, b)
        self._attributes(old, new, changed)
        for number, (one, other) in enumerate(zip_longest(old.inputs, new.inputs)):
            if not self.same_value(one, other):
                change = NodeChange(place, f"input {number}", *_named(one, other))
                self._rewired(one, other, change)
        if (old.name or "") != (new.name or ""):
            labels = (place.node_label or "" for place in (self.old.place(old), place))
            self.report.renamed.append(Rename("node", path, *labels))
        for remark in changed_remarks(old, new):
            changed(*remark)
        self._outputs(path, old, new, changed)
        self._bodies(path, old, new, changed)

    def _attributes(self, old: ir.Node, new: ir.Node, changed: _Changed) -> None:
        entries = changed_entries("", self.old.attributes(old), self.new.attributes(new))
        for name, *texts in entries:
            a, b = (text and text.partition(" = ")[2] for text in texts)
            changed(name, *((a, b) if a != b else texts))

    def _outputs(self, path: str, old: ir.Node, new: ir.Node, changed: _Changed) -> None:
        for number, (one, other) in enumerate(zip_longest(old.outputs, new.outputs)):
            a, b = (v.name or None if v else None for v in (one, other))
            if not (a and b):
                if a != b:
                    changed(f"output {number}", a, b)
                continue
            if not (one.is_graph_output() and other.is_graph_output()):
                self.rename("value", path, one, other)
            if not (one.is_graph_output() or other.is_graph_output()):
                self.declare(path, one, other)
                self._remarks(path, one, other)

    def _bodies(self, path: str, old: ir.Node, new: ir.Node, changed: _Changed) -> None:
        if not (old.attributes.data or new.attributes.data):
            return
        before, after = dict(walk.subgraphs(old)), dict(walk.subgraphs(new))
        index = self.new.place(new).index or 0
        for name in sorted({*before, *after}):
            a, b = before.get(name), after.get(name)
            if a is None or b is None:
                changed(name, None if a is None else "graph", None if b is None else "graph")
                continue
            inner = walk.step_path(path, new.name, index, name)
            self.rename("graph", inner, a, b)
            self.about(inner, a, b)
            self.signature(inner, a, b)
            self.compare(inner, a, b, by_position(a, b), (old, new))
            for pairs in (a.inputs, b.inputs), (a.outputs, b.outputs):
                for one, other in zip(*pairs, strict=False):
                    if not walk.producer(one):
                        self.rename("value", inner, one, other)

    def signature(
        self, path: str, old: ir.Graph | ir.Function, new: ir.Graph | ir.Function
    ) -> None:
        """Report a changed number of inputs or outputs of a body or function."""
        for what in ("inputs", "outputs"):
            ends = getattr(old, what), getattr(new, what)
            if len(ends[0]) != len(ends[1]):
                shown = (", ".join(v.name or "" for v in values) for values in ends)
                self.report.functions.append(Change(path, path, what, *shown))

    def about(self, path: str, old: _Documented, new: _Documented) -> None:
        """Report changed metadata of a model, a graph, a body or a function."""
        for what, *values in changed_remarks(old, new):
            self.report.metadata.append(Change(path, what, "changed", *values))

    def _rewired(
        self, old: ir.Value | None, new: ir.Value | None, change: NodeChange | Change
    ) -> None:
        """Report that a node reads another value, unless added or removed nodes explain it."""
        one, other = walk.producer(old), walk.producer(new)
        gone = one is not None and one not in self.nodes.new
        came = other is not None and other not in self.nodes.old
        if gone or came:
            self.rewired.append((old if gone else None, new if came else None))
        elif isinstance(change, NodeChange):
            self.report.changed.append(change)
        else:
            self.report.interface.append(change)

    def rename(
        self, kind: str, path: str, old: ir.Value | ir.Graph, new: ir.Value | ir.Graph
    ) -> None:
        """Report a changed name."""
        rename = Rename(kind, path, old.name or "", new.name or "")  # type: ignore[arg-type]
        if rename.old != rename.new:
            self.report.renamed.append(rename)

    def declare(self, path: str, old: ir.Value, new: ir.Value) -> None:
        """Note the declarations of a pair of values."""
        self.declarations.append((path, new, declared(self.old, old), declared(self.new, new)))

    def _remarks(self, path: str, old: ir.Value, new: ir.Value) -> None:
        for remark in changed_remarks(old, new):
            self.report.values.append(Change(path, new.name or "", *remark))


def _named(old: ir.Value | None, new: ir.Value | None) -> tuple[str | None, str | None]:
    return (old.name if old else None), (new.name if new else None)


def _operator(node: ir.Node) -> str:
    name = operator_label(node)
    return f"{name}:{node.overload}" if node.overload else name


_Documented = ir.Node | ir.Value | ir.Graph | ir.Function | ir.Model


_V = TypeVar("_V")
_Entry = tuple[str, str | None, str | None]
"""A name, with the old and the new value."""


def changed_remarks(old: _Documented, new: _Documented) -> list[_Entry]:
    """Return the names and both values of changed remarks and metadata."""
    texts = [{"doc_string": one.doc_string} if one.doc_string else {} for one in (old, new)]
    return [
        *changed_entries("", *texts),
        *changed_entries("metadata ", old.metadata_props, new.metadata_props),
    ]


def changed_entries(
    prefix: str, old: Mapping[str, _V], new: Mapping[str, _V]
) -> list[tuple[str, _V | None, _V | None]]:
    """Return the entries of two mappings that differ, their keys with a prefix."""
    if old == new:
        return []
    return [
        (f"{prefix}{key}", old.get(key), new.get(key))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
