"""The stage of `raise` for attention in many nodes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import nodes, values
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.emit import Emitter, ScopedValues
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.raise_report import RaisedAttention, Unraised
from onnx_kvtool.rewrite.raising.assumptions import Unproven
from onnx_kvtool.rewrite.raising.attention.fusing import Fusion, is_candidate, prove, write
from onnx_kvtool.rewrite.raising.attention.sight import Sight
from onnx_kvtool.rewrite.raising.dead import remove_dead
from onnx_kvtool.rewrite.raising.stage import RaiseOutcome, RaiseSettings, scopes_of
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.bounds import Facts, at_least
from onnx_kvtool.symbolic.division import exact_quotient
from onnx_kvtool.symbolic.expression import Expr
from onnx_kvtool.symbolic.knowledge import Knowledge

__all__ = ["raise_attention", "raise_growing_attention"]

_Candidate = tuple[Location, ir.Node]


def raise_growing_attention(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome
) -> bool:
    """Replace attention over caches that are about to become fixed ones, in place.

    Before they do, what is read of a cache is past and new rows by its very sizes; afterwards it is
    a slice whose end is computed. What is not proven here is asked once more by `raise_attention`.

    Returns:
        Whether anything was replaced; the new nodes are of the opset of the result.
    """
    if settings.capacity is None:
        return False
    return _raise(model, settings, outcome, growing=True)


def raise_attention(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Replace attention in many nodes by one Attention, in place, wherever that is proven.

    What lies in functions stays.

    Returns:
        Whether anything was replaced; the new nodes are of the opset of the result.
    """
    return _raise(model, settings, outcome, growing=False)


def _raise(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome, *, growing: bool
) -> bool:
    if settings.attention == "keep":
        return False
    scopes = scopes_of(model)
    candidates = [
        (outcome.place(path, node, index), node)
        for path, index, node in nodes(model)
        if node.graph in scopes and is_candidate(node)
    ]
    if not candidates:
        return False
    before = [(value, value.type) for value in values(model)]
    try:
        proven, refused, note = _prove_all(model, candidates, settings)
        if growing:
            proven = [one for one in proven if one[1].is_growing]
        else:
            outcome.refused += refused
            outcome.notes += note
        outcome.blocked = objections(model, "raise") if proven else []
        if proven and not outcome.blocked:
            _edit(model, proven, settings, scopes, outcome)
    finally:
        for value, type_ in before:
            value.type = type_
    return bool(proven)


def _edit(
    model: ir.Model,
    proven: list[tuple[Location, Fusion]],
    settings: RaiseSettings,
    scopes: Mapping[ir.Graph, ScopedValues],
    outcome: RaiseOutcome,
) -> None:
    """Carry out all fusions, in the order of the graph."""
    target = max(model.opset_imports[""], settings.opset)
    old: list[ir.Node] = []
    for place, fusion in proven:
        graph = fusion.softmax.graph
        assert isinstance(graph, ir.Graph)
        em = Emitter(scopes[graph], target, fusion.softmax.name or "kvtool/attention")
        old += write(fusion, em)
        outcome.attention.append(RaisedAttention(place, fusion.form, fusion.mask, fusion.sentences))
    outcome.removed += remove_dead(old)


def _prove_all(
    model: ir.Model, candidates: list[_Candidate], settings: RaiseSettings
) -> tuple[list[tuple[Location, Fusion]], list[Unraised], list[str]]:
    """Return what is proven, what is not, and remarks."""
    try:
        inference = infer_model(model)
    except KvtoolError as error:
        return [], [], [f"attention is left alone: {error}"]
    knowledge = inference.run.knowledge
    if knowledge.conflicts:
        message = f"sizes contradict each other: {knowledge.conflicts[0].message}"
        return [], [Unraised(place, "contradiction", message) for place, _ in candidates], []
    opset = model.opset_imports[""]
    sight = Sight(inference.run.contents(opset), knowledge, opset)
    proven: list[tuple[Location, Fusion]] = []
    refused: list[Unraised] = []
    for place, node in candidates:
        try:
            fusion = prove(node, sight, settings.attention)
            _check_assumed(fusion, knowledge)
        except (Unproven, MalformedNode) as missing:  # noqa: PERF203
            refused.append(Unraised(place, missing.code, str(missing)))
        else:
            proven.append((place, fusion))
    return proven, refused, []


def _check_assumed(fusion: Fusion, knowledge: Knowledge) -> None:
    """Refuse sizes that are known only if another is not 0, unless nothing is computed then.

    Raises:
        Unproven: If there is such another.
    """
    for size in knowledge.assumed:
        if not any(_is_zero_with(whole, size) for whole in fusion.frame.sizes):
            text = f"sizes are known only where `{size}` is not 0"
            raise Unproven("may-be-empty", text)


def _is_zero_with(size: Expr, other: Expr) -> bool:
    """Return whether a size is 0 where another one is, both being no less."""
    factor = exact_quotient(other, size)
    if exact_quotient(size, other) is not None or (factor is not None and factor.number):
        return True
    return at_least(other, size, Facts())  # as `seq` is, where `past + seq` is
