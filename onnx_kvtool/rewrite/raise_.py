"""Raising a whole model in memory: every step but reading, verifying and writing."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.model import clone
from onnx_kvtool.core.walk import nodes, subgraphs
from onnx_kvtool.rewrite.engine.emit import Emitter, Scope
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.engine.names import Names
from onnx_kvtool.rewrite.engine.rule import Refusal
from onnx_kvtool.rewrite.engine.stamp import normalise_domains
from onnx_kvtool.rewrite.raise_report import Raised, Unraised
from onnx_kvtool.rewrite.raising.assumptions import Assumptions
from onnx_kvtool.rewrite.raising.dead import (
    constants_of,
    remove_dead,
    remove_unread_constants,
)
from onnx_kvtool.rewrite.raising.in_functions import (
    functions_with,
    inline_tagged,
    remove_tags,
    tag_nodes,
)
from onnx_kvtool.rewrite.raising.proving import Planned, Proving, is_candidate
from onnx_kvtool.rewrite.raising.replace import Replaced, replace_update
from onnx_kvtool.rewrite.upgrade import upgrade
from onnx_kvtool.shapes.infer import annotate
from onnx_kvtool.symbolic.dims import Dim

__all__ = ["RaiseOutcome", "raise_updates"]


@dataclass(slots=True)
class RaiseOutcome:
    """What raising did to a model.

    Attributes:
        source_opset: Version of the default domain before.
        target_opset: Version of the default domain after.
        raised: Every update that became a TensorScatter.
        refused: Every candidate that stays as it was.
        blocked: Why nothing could be raised at all; the model is then fit for nothing else.
        removed: Number of nodes that served the old forms only and are gone.
        notes: Remarks for people.
        positions: Values that are assumed to hold positions which count up by one.
        equal_dims: Dimensions that are equal in every run of the source, or are assumed to be.
    """

    source_opset: int
    target_opset: int
    raised: list[Raised] = field(default_factory=list)
    refused: list[Unraised] = field(default_factory=list)
    blocked: list[Diagnostic] = field(default_factory=list)
    removed: int = 0
    notes: list[str] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)
    equal_dims: list[tuple[Dim, Dim]] = field(default_factory=list)


def raise_updates(model: ir.Model, opset: int, assumptions: Assumptions) -> RaiseOutcome:
    """Replace every proven update of a cache by a TensorScatter, in place.

    The model comes to the opset only if something was raised. What cannot be proven stays.

    Args:
        model: The model. If anything is `blocked` it may be half rewritten and must be thrown away.
        opset: Version of the default domain of the result, at least 24; a later one stays.
        assumptions: What may be taken for granted.
    """
    normalise_domains(model)
    source = model.opset_imports.get("")
    if source is None:
        return RaiseOutcome(0, 0)
    outcome = RaiseOutcome(source, source)
    if not any(is_candidate(node) for _, _, node in nodes(model)):
        return outcome
    elsewhere = _open_functions(model, assumptions, source, outcome)
    annotations = annotate(model, fully=True)
    if annotations.failure:
        outcome.notes.append(annotations.failure)
    proving = Proving(model, assumptions, source)
    proving.run()
    outcome.refused += [*proving.refused, *elsewhere]
    remove_tags(model)
    if not proving.plans:
        proving.forget_sizes()
        annotations.remove()
        return outcome
    outcome.blocked = objections(model, "raise")
    if outcome.blocked:
        return outcome
    target = max(source, opset)
    constants = constants_of(model)
    _edit(proving, target, outcome)
    proving.forget_sizes()
    annotations.remove()
    upgraded = upgrade(model, target)
    remove_unread_constants(model, constants)
    outcome.notes += upgraded.notes
    outcome.blocked = upgraded.refused
    outcome.target_opset = target
    for _, _, node in nodes(model):
        node.version = None
    return outcome


def _open_functions(
    model: ir.Model, assumptions: Assumptions, opset: int, outcome: RaiseOutcome
) -> list[Unraised]:
    """Inline the functions that hold an update which can be proven at one of their calls, in place.

    Which they are is found out on a copy, so that all other functions stay.

    Returns:
        The candidates in functions that stay.
    """
    holding = functions_with(model, is_candidate)
    if not holding:
        return []
    copy = clone(model)
    tag_nodes(copy, is_candidate)
    try:
        inline_tagged(copy, holding.values())
    except Refusal as refusal:
        outcome.notes.append(f"updates in functions are left alone: {refusal.message}")
        return []
    annotate(copy, fully=True)
    proving = Proving(copy, assumptions, opset)
    proving.run()
    proven = {
        place.graph.split("/")[0] for p in proving.plans if "::" in (place := p.location).graph
    }
    opened = [key for path, key in holding.items() if path in proven]
    tag_nodes(model, is_candidate)
    if opened:
        outcome.notes += inline_tagged(model, opened)
    stay = {
        refusal.location: refusal
        for refusal in proving.refused
        if (root := refusal.location.graph.split("/")[0]) in holding and root not in proven
    }
    return list(stay.values())


def _edit(proving: Proving, target: int, outcome: RaiseOutcome) -> None:
    """Carry out all plans, in the order of the graph."""
    scopes = _scopes(proving.model, Names(proving.model))
    replaced: Replaced = {}
    old: list[ir.Node] = []
    for planned in proving.plans:
        one = planned.plan
        graph = one.node.graph
        assert graph is not None
        em = Emitter(scopes[graph], target, one.node.name or "kvtool/raise")
        old += [one.node, *(p for v in one.presents if (p := v.producer()) is not None)]
        scatter = replace_update(one, em, replaced)
        outcome.raised.append(_raised(planned, scatter))
        outcome.equal_dims += one.implied
        outcome.positions += one.counting
    outcome.equal_dims += proving.assumptions.dims
    outcome.removed = remove_dead(old)


def _scopes(model: ir.Model, names: Names) -> dict[ir.Graph, Scope]:
    """Return the scope of each graph of the model but functions."""
    found: dict[ir.Graph, Scope] = {}

    def add(graph: ir.Graph, parent: Scope | None) -> None:
        scope = found[graph] = Scope(graph, parent, names)
        for node in graph:
            for _, body in subgraphs(node):
                add(body, scope)

    add(model.graph, None)
    return found


def _raised(planned: Planned, scatter: ir.Node) -> Raised:
    one = planned.plan
    past, update, *rest = scatter.inputs
    assert past is not None and update is not None
    starts = rest[0] if rest else None
    assumed = tuple(f"assumed: {text}" for text in one.assumed)
    return Raised(
        location=planned.location,
        pattern=planned.raising.name,
        axis=one.axis,
        mode=one.mode,
        past=past.name or "",
        update=update.name or "",
        write_indices=None if starts is None else starts.name,
        present=scatter.outputs[0].name or "",
        proof=(*one.sentences, *assumed),
        assumed=one.assumed,
    )
