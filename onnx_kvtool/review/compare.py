"""The changes between two models, and replaced parts."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.analysis.inspection import NodeFacts, node_facts
from onnx_kvtool.core import walk
from onnx_kvtool.core.domains import operator_label
from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.external_data import external_files
from onnx_kvtool.model_io.model import origin
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.review.digests import Digests
from onnx_kvtool.review.graphs import (
    GraphComparison,
    ValuePairs,
    by_position,
    changed_entries,
    changed_remarks,
)
from onnx_kvtool.review.report import Change, DiffReport, Rename, Replacement
from onnx_kvtool.review.side import Side, dim_renames, type_of, with_names


def replacements(
    sides: tuple[Side, Side],
    removed: Sequence[ir.Node],
    added: Sequence[ir.Node],
    rewired: Iterable[tuple[ir.Value | None, ir.Value | None]],
) -> tuple[list[Replacement], list[NodeFacts], list[NodeFacts]]:
    """Group added nodes with the removed nodes that they replace.

    A node replaces another one if its output goes to the same reader, or has the same name. Several
    nodes may replace one node with several outputs, and the reverse. A group also has the nodes
    that lead only to it. The last group has the nodes that lead to several groups.

    Returns:
        The groups, the other removed nodes, and the other added nodes.
    """
    old_ends, new_ends = _ends(removed, added, (*rewired, *_same_names(removed, added)))
    led_old = _led_to(removed, old_ends)
    led_new = _led_to(added, new_ends)

    def facts(group: int | str | None) -> tuple[tuple[NodeFacts, ...], tuple[NodeFacts, ...]]:
        old, new = (
            tuple(node_facts(side.place(node), node) for node in led.get(group, ()))
            for side, led in zip(sides, (led_old, led_new), strict=True)
        )
        return old, new

    groups = [Replacement(*facts(group)) for group in dict.fromkeys(old_ends.values())]
    if any(shared := facts("several")):
        groups.append(Replacement(*shared, is_shared=True))
    went, came = map(list, facts(None))
    return groups, went, came


def _ends(
    removed: Iterable[ir.Node],
    added: Iterable[ir.Node],
    pairs: Iterable[tuple[ir.Value | None, ir.Value | None]],
) -> tuple[dict[ir.Node, int], dict[ir.Node, int]]:
    """Return the number of the group of each removed and of each added node with a counterpart.

    Only the first counterpart of a value counts. All outputs of a node are in the same group.
    """
    gone, came = set(removed), set(added)
    old_ends: dict[ir.Node, int] = {}
    new_ends: dict[ir.Node, int] = {}
    paired: set[ir.Value] = set()
    count = 0
    for old, new in pairs:
        if old is None or new is None or old in paired or new in paired:
            continue
        one, other = old.producer(), new.producer()
        if one is None or other is None or one not in gone or other not in came:
            continue
        if one in old_ends and other in new_ends:
            continue
        group = old_ends.get(one, new_ends.get(other, count))
        count = max(count, group + 1)
        old_ends[one] = new_ends[other] = group
        paired |= {old, new}
    return old_ends, new_ends


def _same_names(
    removed: Iterable[ir.Node], added: Iterable[ir.Node]
) -> Iterable[tuple[ir.Value, ir.Value]]:
    made = {value.name: value for node in added for value in node.outputs if value.name}
    for node in removed:
        for value in node.outputs:
            if value.name in made:
                yield value, made[value.name]


def _led_to(
    nodes: Sequence[ir.Node], ends: Mapping[ir.Node, int]
) -> dict[int | str | None, list[ir.Node]]:
    """Return the nodes by the group that they lead to: a number, `several`, or None for others."""
    end_of: dict[ir.Node, int | str | None] = {}
    for node in reversed(nodes):
        if node in ends:
            end_of[node] = ends[node]
            continue
        reached: set[int | str | None] = set()
        for value in node.outputs:
            if value.is_graph_output():
                reached.add(None)
            reached.update(end_of.get(use.node) for use in value.uses())
        if len(reached) == 1:
            end_of[node] = reached.pop()
        else:
            end_of[node] = "several" if reached and None not in reached else None
    found: dict[int | str | None, list[ir.Node]] = {}
    for node in nodes:
        found.setdefault(end_of[node], []).append(node)
    return found


_FACTS = ("ir_version", "producer_name", "producer_version", "domain", "model_version")
_CACHE_FACTS = ("kind", "dtype", "shape", "axis", "mode", "capacity", "growing", "in_place")


def compare_models(
    old: ir.Model,
    new: ir.Model,
    caches: Sequence[Sequence[Cache]],
    digests: Digests,
    *,
    how_much: bool,
) -> DiffReport:
    """Return the changes between two models, whose nodes get sorted.

    Nobody else may use the models. If `how_much`, changed weights are read again, to measure the
    differences.

    Raises:
        UnreadableModel: If a tensor cannot be read.
    """
    report = DiffReport(origin(old).name, origin(new).name)
    sides = Side(old, digests), Side(new, digests)
    graphs = GraphComparison(*sides, report, digests if how_much else None)
    _model_facts(graphs)
    inputs = _same_inputs(sides)
    outputs = _by_name(old.graph.outputs, new.graph.outputs)
    path = walk.graph_path(new.graph.name)
    graphs.about(path, old.graph, new.graph)
    graphs.compare(path, old.graph, new.graph, (inputs, outputs))
    outputs += _renamed_outputs(graphs, outputs)
    _functions(graphs, report)
    _interface(graphs, inputs, outputs)
    renames = _declarations(graphs, report)
    _caches(caches[0], caches[1], report, renames)
    found = replacements(sides, graphs.removed, graphs.added, graphs.rewired)
    report.replaced, report.removed, report.added = found
    counts = [Counter(operator_label(n) for _, _, n in walk.nodes(m)) for m in (old, new)]
    for op, *both in changed_entries("", *counts):
        report.ops[op] = (both[0] or 0, both[1] or 0)
    files = [sorted({os.fspath(f.location) for f in external_files(m)}) for m in (old, new)]
    if files[0] != files[1]:
        report.storage.append(Change("", "external data", "files", *files))
    return report


def matched_values(old: ir.Model, new: ir.Model) -> dict[str, str]:
    """Return the new name of each value of the main graph whose node has a pair."""
    report, digests = DiffReport("", ""), Digests("none")
    sides = Side(old, digests), Side(new, digests)
    graphs = GraphComparison(*sides, report, None)
    outputs = _by_name(old.graph.outputs, new.graph.outputs)
    ends = _same_inputs(sides), outputs
    graphs.compare(walk.graph_path(new.graph.name), old.graph, new.graph, ends)
    return {
        before.name: after.name
        for node, other in graphs.nodes.new.items()
        if node.graph is old.graph
        for before, after in zip(node.outputs, other.outputs, strict=False)
        if before.name and after.name
    }


def _model_facts(graphs: GraphComparison) -> None:
    old, new, report = graphs.old.model, graphs.new.model, graphs.report
    _opsets("", old.opset_imports, new.opset_imports, report)
    for name in _FACTS:
        before, after = getattr(old, name), getattr(new, name)
        if (before or None) != (after or None):
            report.metadata.append(Change("", name, "changed", before or None, after or None))
    graphs.about("", old, new)
    graphs.rename("graph", "", old.graph, new.graph)
    texts_old, texts_new = map(_training, (old, new))
    if texts_old != texts_new:
        report.metadata.append(Change("", "training_info", "changed", texts_old, texts_new))


def _training(model: ir.Model) -> str | None:
    known = origin(model).training
    if not known:
        return None
    data = b"".join(info.SerializeToString(deterministic=True) for info in known)
    return f"sha256 {hashlib.sha256(data).hexdigest()[:16]}"


def _opsets(place: str, old: Mapping[str, int], new: Mapping[str, int], report: DiffReport) -> None:
    for domain, before, after in changed_entries("", old, new):
        what = "added" if before is None else "removed" if after is None else "version"
        report.opsets.append(Change(place, domain, what, before, after))


def _by_name(old: Sequence[ir.Value], new: Sequence[ir.Value]) -> ValuePairs:
    known: dict[str | None, list[ir.Value]] = {}
    for value in reversed(new):  # a broken model has two of one name
        known.setdefault(value.name, []).append(value)
    return [(value, known[value.name].pop()) for value in old if known.get(value.name)]


def _same_inputs(sides: tuple[Side, Side]) -> ValuePairs:
    """Pair inputs by name, the others by type and readers."""
    olds, news = (side.model.graph.inputs for side in sides)
    pairs = _by_name(olds, news)
    known = {value for pair in pairs for value in pair}
    groups: dict[Hashable, tuple[list[ir.Value], list[ir.Value]]] = {}
    for place, values in enumerate((olds, news)):
        for value in values:
            if value not in known:
                readers = sorted((use.node.op_type, use.idx) for use in value.uses())
                rank = len(value.shape) if value.shape else None
                key = str(value.type), rank, tuple(readers)
                groups.setdefault(key, ([], []))[place].append(value)
    for before, after in groups.values():
        if len(before) == len(after):
            pairs += zip(before, after, strict=True)
    return pairs


def _renamed_outputs(graphs: GraphComparison, known: ValuePairs) -> ValuePairs:
    """Pair outputs with another name by their nodes."""
    taken = {value for pair in known for value in pair}
    news = {(v.producer(), v.index()): v for v in graphs.new.model.graph.outputs if v not in taken}
    pairs = []
    for value in graphs.old.model.graph.outputs:
        node = value.producer()
        other = graphs.nodes.new.get(node) if node is not None and value not in taken else None
        found = news.get((other, value.index())) if other is not None else None
        if found is not None:
            pairs.append((value, found))
    return pairs


def _functions(graphs: GraphComparison, report: DiffReport) -> None:
    olds, news = graphs.old.model.functions, graphs.new.model.functions
    for key in sorted({*olds, *news}):
        path = walk.function_path(*key)
        if key not in olds or key not in news:
            size = counted(len({**olds, **news}[key]), "node")
            report.functions.append(Change.whole(path, path, size, is_added=key in news))
            continue
        old, new = olds[key], news[key]
        _opsets(path, old.opset_imports, new.opset_imports, report)
        graphs.about(path, old, new)
        graphs.signature(path, old, new)
        before, after = _parameters(graphs.old, old), _parameters(graphs.new, new)
        for entry in changed_entries("attribute ", before, after):
            report.functions.append(Change(path, path, *entry))
        graphs.compare(path, old.graph, new.graph, by_position(old, new))
        for one, other in zip(old.inputs, new.inputs, strict=False):
            graphs.rename("value", path, one, other)


def _parameters(side: Side, function: ir.Function) -> dict[str, str]:
    return {
        name: "required" if attribute.value is None else side.attribute_text(attribute)
        for name, attribute in function.attributes.items()
    }


def _interface(graphs: GraphComparison, inputs: ValuePairs, outputs: ValuePairs) -> None:
    report, sides = graphs.report, (graphs.old, graphs.new)
    for kind, pairs in (("input", inputs), ("output", outputs)):
        ends = [getattr(side.model.graph, f"{kind}s") for side in sides]
        known = {value for pair in pairs for value in pair}
        for side, values in zip(sides, ends, strict=True):
            report.interface += [
                Change.whole(kind, v.name or "", type_of(side, v), is_added=side is graphs.new)
                for v in values
                if v not in known
            ]
        for a, b in pairs:
            graphs.rename(kind, "", a, b)
            if kind == "input" and a.is_initializer() != b.is_initializer():
                words = ["optional" if v.is_initializer() else "required" for v in (a, b)]
                report.interface.append(Change(kind, b.name or "", "default", *words))
            for remark in changed_remarks(a, b):
                report.interface.append(Change(kind, b.name or "", *remark))
        if kind == "output":
            for a, b in pairs:
                graphs.declare("output", a, b)
        new_of = dict(pairs)
        order = [new_of[a] for a in ends[0] if a in new_of]
        now = [b for b in ends[1] if b in known]
        if order != now:
            names = [[v.name for v in values] for values in (order, now)]
            report.interface.append(Change(kind, "", "order", *names))


def _declarations(graphs: GraphComparison, report: DiffReport) -> dict[str, str]:
    """Report changed declarations; return the new names of dimensions."""
    renames = dim_renames((a, b) for _, _, a, b in graphs.declarations)
    report.renamed += [Rename("dimension", "", a, b) for a, b in renames.items()]
    for path, value, before, after in graphs.declarations:
        pairs = zip(("dtype", "shape"), with_names(before, renames), after, strict=True)
        is_input = value.is_graph_input() and value.graph is graphs.new.model.graph
        place = "input" if is_input else path
        out = report.interface if is_input or path == "output" else report.values
        for what, *facts in pairs:
            if facts[0] != facts[1]:
                shown = (list(fact) if isinstance(fact, tuple) else fact for fact in facts)
                out.append(Change(place, value.name or "", what, *shown))
    return renames


def _caches(
    old: Sequence[Cache], new: Sequence[Cache], report: DiffReport, renames: dict[str, str]
) -> None:
    names = {r.old: r.new for r in report.renamed if r.kind in ("input", "initializer", "value")}
    ends = {r.old: r.new for r in report.renamed if r.kind == "output"}
    before = {_cache_name(c, names, ends): c for c in old}
    after = {_cache_name(c, {}, {}): c for c in new}
    for key in before | after:
        a, b = before.get(key), after.get(key)
        if a is None or b is None:
            kind = (a or b).kind  # type: ignore[union-attr]
            report.caches.append(Change.whole("", key, kind, is_added=a is None))
            continue
        has_axis = a.axis == b.axis
        facts = _cache_facts(a, renames, has_axis), _cache_facts(b, {}, has_axis)
        changes = [
            Change("", key, what, facts[0][what], facts[1][what])
            for what in _CACHE_FACTS
            if facts[0][what] != facts[1][what]
        ]
        report.caches += changes
        report.caches_same += not changes


def _cache_name(cache: Cache, names: Mapping[str, str], ends: Mapping[str, str]) -> str:
    if cache.past is not None:
        return names.get(cache.past, cache.past)
    present = cache.present or cache.location.node_label or ""
    return ends.get(present, names.get(present, present))


def _cache_facts(cache: Cache, renames: dict[str, str], has_axis: bool) -> dict[str, object]:
    _, shape = with_names((None, cache.shape), renames)
    axis = cache.axis
    rest = None if shape is None else [d for i, d in enumerate(shape) if i != axis or not has_axis]
    return {
        "kind": cache.kind,
        "dtype": None if cache.dtype is None else dtype_name(cache.dtype),
        "shape": rest,  # without the capacity, which has its own entry
        "axis": axis,
        "mode": cache.mode,
        "capacity": None if shape is None or axis is None else shape[axis],
        "growing": cache.is_growing,
        "in_place": cache.in_place.possible,
    }
