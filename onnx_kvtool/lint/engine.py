"""Running rules over one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from onnx_kvtool.core.collector import collector_paused
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import Check, Rule
from onnx_kvtool.lint.settings.fingerprint import with_fingerprints
from onnx_kvtool.lint.settings.suppression import suppress
from onnx_kvtool.shapes.infer import Annotations, annotate
from onnx_kvtool.targets.target import Target

__all__ = ["lint", "look"]


def lint(model: ir.Model, rules: Iterable[Rule], targets: Sequence[Target] = ()) -> list[Finding]:
    """Return what rules find in a model, in the order of the model and then of the codes.

    What the model suppresses is not among it; see `suppression`.

    Args:
        model: The model. Inferred types and shapes are written on its values and taken away again.
        rules: The rules that are switched on.
        targets: Releases of runtimes that must run the model; they switch on the rules of theirs.
    """
    return look(model, rules, targets)[0]


def look(
    model: ir.Model, rules: Iterable[Rule], targets: Sequence[Target] = ()
) -> tuple[list[Finding], int]:
    """Return what `lint` returns, and how many findings the model suppresses."""
    with collector_paused():
        annotations = _annotate(model)
        try:
            chosen = list(rules)
            context = Context(model, targets, annotations.agrees, annotations.added)
            found: dict[Diagnostic, Finding] = {}
            for finding in _findings(context, chosen):
                found.setdefault(finding.diagnostic, finding)
            left, suppressed = suppress(list(found.values()), context, chosen)
            order = {path: place for place, (path, _) in enumerate(context.graphs)}
            left.sort(key=lambda finding: _key(finding, order))
            return with_fingerprints(left, context), suppressed
        finally:
            annotations.remove()


def _annotate(model: ir.Model) -> Annotations:
    try:
        return annotate(model, frozen=True)  # rules look only
    except KvtoolError as error:  # what has no written form cannot be handed to onnx
        return Annotations([], error.message)


def _findings(context: Context, rules: Sequence[Rule]) -> Iterator[Finding]:
    wanted: dict[str, list[tuple[Rule, Check]]] = {}
    for rule in rules:
        if rule.operators:
            for operator in rule.operators:
                wanted.setdefault(operator, []).append((rule, rule.check()))
        elif rule.runtime:
            for target in filter(rule.is_about, context.targets):
                yield from rule.check()(rule, context, target)
        elif rule.family:
            yield from rule.check()(rule, context)
    op_types = [operator.rpartition("::")[2] for operator in wanted]
    for site in context.sites_of(*op_types):
        for rule, check in wanted.get(_operator(site), ()):
            yield from check(rule, site, context)


def _operator(site: Site) -> str:
    node = site.node
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _key(finding: Finding, order: dict[str, int]) -> tuple[int, int, str, str]:
    """Return what sorts findings: model, graph, node, code, value."""
    place = finding.location
    graph = order.get(place.graph, len(order)) if place.graph else -1
    index = -1 if place.index is None else place.index
    return (graph, index, finding.code, place.value or "")
