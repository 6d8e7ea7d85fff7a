"""Attention in model-local functions, whose sizes are known at their calls only."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.attention.fusing import is_candidate
from onnx_kvtool.core.model import clone
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.rewrite.raise_report import Unraised
from onnx_kvtool.rewrite.raising.attention.proving import prove_all
from onnx_kvtool.rewrite.raising.in_functions import (
    functions_with,
    inline_tagged,
    place_of,
    tag_nodes,
)
from onnx_kvtool.rewrite.raising.stage import RaiseOutcome, RaiseSettings

__all__ = ["open_functions"]


def open_functions(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome
) -> list[Unraised]:
    """Inline the functions that hold attention which is proven at one of their calls, in place.

    Which they are is found out on a copy, so that all other functions stay. Nodes of functions that
    are inlined have a note of where they stood.

    Returns:
        The candidates in functions that stay, each once, with the reason at the first call.
    """
    holding = functions_with(model, is_candidate)
    if not holding:
        return []
    copy = clone(model)
    tag_nodes(copy, is_candidate)
    try:
        inline_tagged(copy, holding.values(), "attention")
    except Refusal as refusal:
        outcome.notes.append(f"attention in functions is left alone: {refusal.message}")
        return []
    places = ((place_of(node), node) for _, _, node in nodes(copy) if is_candidate(node))
    candidates = [(place, node) for place, node in places if place is not None]
    proven, refused, notes = prove_all(copy, candidates, settings)
    outcome.notes += notes
    roots = {place.graph.split("/")[0] for place, _ in proven}
    tag_nodes(model, is_candidate)
    if roots:
        opened = [key for path, key in holding.items() if path in roots]
        outcome.notes += inline_tagged(model, opened, "attention")
    stay = {one.location: one for one in reversed(refused)}
    return [one for one in stay.values() if one.location.graph.split("/")[0] not in roots][::-1]
