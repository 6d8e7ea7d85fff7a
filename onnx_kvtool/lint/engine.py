"""Run rules over one model, and apply its suppressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.domains import operator_label
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import collector_paused
from onnx_kvtool.core.walk import step_path, subgraphs
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Finding, Fix, Found
from onnx_kvtool.lint.rule import RULES, Check, Rule
from onnx_kvtool.lint.settings.baseline import with_fingerprints
from onnx_kvtool.lint.settings.config import matches, split_codes
from onnx_kvtool.shapes.annotations import Annotations, annotate
from onnx_kvtool.targets.target import Target


def look(
    model: ir.Model, rules: Iterable[Rule], targets: Sequence[Target] = ()
) -> tuple[list[Finding], int]:
    """Return the findings in a model, in the order of the model, then of the codes.

    Inferred types and shapes are written on the values of the model and removed again. Findings
    that the model suppresses are left out (`suppress`); their number comes second.
    """
    with collector_paused():
        try:
            annotations = annotate(model, frozen=True)  # rules look only
        except KvtoolError as error:  # onnx cannot check a model that cannot be serialised
            annotations = Annotations([], error.message)
        try:
            chosen = list(rules)
            context = Context(model, targets, annotations)
            found: dict[Diagnostic, Finding] = {}
            for rule, what in _found(context, chosen):
                finding = rule.found(what)
                found.setdefault(finding.diagnostic, finding)
            left, suppressed = suppress(list(found.values()), context, chosen)
            order = {path: place for place, (path, _) in enumerate(context.graphs)}
            left.sort(key=lambda finding: _key(finding, order))
            return with_fingerprints(left, context) if left else left, suppressed
        finally:
            annotations.remove()


def _found(context: Context, rules: Sequence[Rule]) -> Iterator[tuple[Rule, Found]]:
    wanted: dict[str, list[tuple[Rule, Check]]] = {}
    for rule in rules:
        if rule.operators:
            for operator in rule.operators:
                wanted.setdefault(operator, []).append((rule, rule.check()))
        elif rule.runtime:
            for target in filter(rule.is_about, context.targets):
                yield from ((rule, one) for one in rule.check()(context, target))
        elif rule.family:
            yield from ((rule, one) for one in rule.check()(context))
    op_types = [operator.rpartition("::")[2] for operator in wanted]
    for site in context.sites_of(*op_types):
        for rule, check in wanted.get(operator_label(site.node), ()):
            yield from ((rule, one) for one in check(site, context))


def _key(finding: Finding, order: dict[str, int]) -> tuple[int, int, str, str]:
    """Return the sort key of a finding: model, graph, node, code, value."""
    place = finding.location
    graph = order.get(place.graph, len(order)) if place.graph else -1
    index = -1 if place.index is None else place.index
    return (graph, index, finding.code, place.value or "")


KEY = "kvtool.ignore"
"""Key of the metadata with codes, separated by commas or spaces."""

_UNUSED = "MD410"


@dataclass(slots=True)
class _Suppression:
    """One entry `kvtool.ignore`.

    Attributes:
        place: Its place.
        graphs: Paths of the graphs that it covers completely; None for the whole model.
        metadata: The metadata that it is part of.
        unused: Its codes that have not suppressed anything yet.
    """

    place: Location
    graphs: frozenset[str] | None
    metadata: MutableMapping[str, str]
    codes: list[str]
    unused: list[str]

    def covers(self, place: Location) -> bool:
        """Return whether the entry covers a place."""
        if self.graphs is None or place.graph in self.graphs:
            return True
        own = self.place
        if own.index is None or place.graph != own.graph:
            return False
        if place.index is None:
            return place.node is not None and place.node == own.node
        return place.index == own.index


def suppress(
    findings: Sequence[Finding], context: Context, rules: Sequence[Rule]
) -> tuple[list[Finding], int]:
    """Remove the findings that the model suppresses; add one for each unused suppression.

    An entry on a node covers the node and its bodies; on a graph or a function, its content; on the
    model, everything. It lists codes or prefixes of codes.

    Return the findings that are left, and the number of suppressed ones. Codes of rules that were
    not switched on are not reported as unused.
    """
    entries = list(_entries(context))
    if not entries:
        return list(findings), 0
    targets = context.targets
    ran = {rule.code for rule in rules if not rule.runtime or any(map(rule.is_about, targets))}
    left = [finding for finding in findings if not _is_suppressed(finding, entries)]
    if _UNUSED in ran:
        unused = [f for entry in entries for f in _unused(entry, ran)]
        left += [finding for finding in unused if not _is_suppressed(finding, entries)]
        return left, len(findings) + len(unused) - len(left)
    return left, len(findings) - len(left)


def _is_suppressed(finding: Finding, entries: Sequence[_Suppression]) -> bool:
    """Return whether any entry suppresses a finding, and mark its codes as used."""
    suppressed = False
    for entry in entries:
        hits = [code for code in entry.codes if matches(code, finding.code)]
        if hits and entry.covers(finding.location):
            suppressed = True
            entry.unused = [code for code in entry.unused if code not in hits]
    return suppressed


def _unused(entry: _Suppression, ran: set[str]) -> Iterator[Finding]:
    rule = RULES[_UNUSED]
    for code in entry.unused:
        meant = {known for known in RULES if matches(code, known)}
        if _UNUSED in meant or not meant <= ran:
            continue
        what = "which suppresses nothing" if meant else "which is the code of no rule"
        remedy = f"remove `{code}` from `{KEY}`"
        fix = Fix("safe", remedy, partial(_remove, entry.metadata, code))
        yield rule.found(
            Found(entry.place, f"`{KEY}` names `{code}`, {what}", help=remedy, fix=fix)
        )


def _remove(metadata: MutableMapping[str, str], code: str) -> None:
    left = [word for word in split_codes(metadata.get(KEY, "")) if word != code]
    if left:
        metadata[KEY] = ", ".join(left)
    else:
        metadata.pop(KEY, None)


def _entries(context: Context) -> Iterator[_Suppression]:
    yield from _entry(context.model.metadata_props, Location(), None)
    for path, graph in context.graphs:
        yield from _entry(graph.metadata_props, Location(path), _paths(graph, path))
    for site in context.sites:
        inner = _inner_paths(site.node, site.index, site.path)
        yield from _entry(site.node.metadata_props, site.location(), inner)


def _entry(
    metadata: MutableMapping[str, str], place: Location, graphs: Iterable[str] | None
) -> Iterator[_Suppression]:
    if KEY in metadata:
        codes = split_codes(metadata[KEY])
        covered = None if graphs is None else frozenset(graphs)
        yield _Suppression(place, covered, metadata, codes, list(dict.fromkeys(codes)))


def _paths(graph: ir.Graph, path: str) -> Iterator[str]:
    """Yield the paths of a graph and of the bodies in it."""
    yield path
    for index, node in enumerate(graph):
        yield from _inner_paths(node, index, path)


def _inner_paths(node: ir.Node, index: int, path: str) -> Iterator[str]:
    for name, body in subgraphs(node) if node.attributes.data else ():
        yield from _paths(body, step_path(path, node.name, index, name))
