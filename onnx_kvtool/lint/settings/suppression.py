"""Suppression in the model: the metadata `kvtool.ignore`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import function_path, graph_path, step_path, subgraphs
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Finding, Fix
from onnx_kvtool.lint.rule import Rule
from onnx_kvtool.lint.settings.selection import matches, split_codes
from onnx_kvtool.lint.table import RULES

__all__ = ["KEY", "suppress"]

KEY = "kvtool.ignore"
"""Key of the metadata that holds codes, with commas or spaces between them."""

_UNUSED = "MD410"


@dataclass(slots=True)
class _Suppression:
    """One entry `kvtool.ignore`.

    Attributes:
        place: Where it stands.
        graphs: Paths of the graphs in which it covers everything; None for the whole model.
        metadata: The metadata in which it stands.
        unused: Its codes that have not suppressed anything yet.
    """

    place: Location
    graphs: frozenset[str] | None
    metadata: MutableMapping[str, str]
    codes: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def covers(self, place: Location) -> bool:
        """Return whether a place lies where the entry counts."""
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
    """Take away the findings that the model suppresses, and add one for what suppresses nothing.

    An entry on a node covers the node and its bodies, on a graph or a function what is in it, on
    the model everything. It holds codes or beginnings of codes.

    Args:
        findings: What was found.
        context: The model in which it was found.
        rules: The rules that were switched on; of the codes of others nothing is said.

    Returns:
        The findings that are left, and the number of those that were taken away.
    """
    entries = list(_entries(context))
    if not entries:
        return list(findings), 0
    ran = {rule.code for rule in rules if _ran(rule, context)}
    left = [finding for finding in findings if not _is_suppressed(finding, entries)]
    if _UNUSED in ran:
        unused = [f for entry in entries for f in _unused(entry, ran)]
        left += [finding for finding in unused if not _is_suppressed(finding, entries)]
        return left, len(findings) + len(unused) - len(left)
    return left, len(findings) - len(left)


def _ran(rule: Rule, context: Context) -> bool:
    return not rule.runtime or any(map(rule.is_about, context.targets))


def _is_suppressed(finding: Finding, entries: Sequence[_Suppression]) -> bool:
    """Return whether any entry suppresses a finding, and count the codes that do as used."""
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
        yield rule.found(
            entry.place,
            f"`{KEY}` names `{code}`, {what}",
            help=f"remove `{code}` from `{KEY}`",
            fix=Fix("safe", f"remove `{code}` from `{KEY}`", _removal(entry.metadata, code)),
        )


def _removal(metadata: MutableMapping[str, str], code: str) -> Callable[[], None]:
    def remove() -> None:
        left = [word for word in split_codes(metadata.get(KEY, "")) if word != code]
        if left:
            metadata[KEY] = ", ".join(left)
        else:
            metadata.pop(KEY, None)

    return remove


def _entries(context: Context) -> Iterator[_Suppression]:
    model = context.model
    yield from _entry(model.metadata_props, Location(), None)
    yield from _graph(model.graph, graph_path(model.graph.name))
    for function in model.functions.values():
        path = function_path(function.domain, function.name, function.overload)
        if KEY in function.metadata_props:
            covered = frozenset(_paths(function.graph, path))
            yield from _entry(function.metadata_props, Location(path), covered)
        yield from _graph(function.graph, path)


def _graph(graph: ir.Graph, path: str) -> Iterator[_Suppression]:
    if KEY in graph.metadata_props:
        yield from _entry(graph.metadata_props, Location(path), frozenset(_paths(graph, path)))
    for index, node in enumerate(graph):
        if KEY in node.metadata_props:
            covered: set[str] = set()
            for name, body in subgraphs(node):
                covered.update(_paths(body, step_path(path, node.name, index, name)))
            place = Location.of(path, node, index)
            yield from _entry(node.metadata_props, place, frozenset(covered))
        if node.attributes.data:
            for name, body in subgraphs(node):
                yield from _graph(body, step_path(path, node.name, index, name))


def _entry(
    metadata: MutableMapping[str, str], place: Location, graphs: frozenset[str] | None
) -> Iterator[_Suppression]:
    if KEY in metadata:
        codes = split_codes(metadata[KEY])
        yield _Suppression(place, graphs, metadata, codes, list(dict.fromkeys(codes)))


def _paths(graph: ir.Graph, path: str) -> Iterator[str]:
    """Yield the paths of a graph and of the bodies in it."""
    yield path
    for index, node in enumerate(graph):
        if node.attributes.data:
            for name, body in subgraphs(node):
                yield from _paths(body, step_path(path, node.name, index, name))
