"""Lowering below opset 11: to 11 by the usual rules, and on from there one opset at a time.

What a rule writes for opset 11 is lowered like any node of the source, with types and shapes
inferred anew; what is said of it is said of the node of the source that it was written for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.core.choices import ContribChoice
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.rewrite.engine.rule import RewriteRule
from onnx_kvtool.rewrite.lowering.early.control_flow import settle_branches, settle_loops
from onnx_kvtool.rewrite.lowering.early.sequences import settle_sequences
from onnx_kvtool.rewrite.lowering.early.table import STEPS
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.report import Lowered, Outcome

__all__ = ["AT_ONCE", "Step", "Trace", "in_steps"]

AT_ONCE = 11
"""The lowest opset to which a model is lowered in one step."""

Trace = dict[ir.Node, Location]
Step = Callable[
    [int, Mapping[str, RewriteRule], ContribChoice | None, Trace],
    Outcome,
]
"""Lowers the model to an opset by a table of rules, and notes where each node comes from."""

_Places = dict[tuple[str, int | None], Location]


def in_steps(model: ir.Model, opset: int, contrib: ContribChoice | None, step: Step) -> Outcome:
    """Lower a model to an opset below 11, in place.

    Args:
        model: The model.
        opset: The target.
        contrib: What is done with operators of onnxruntime, before the first step.
        step: Lowers the model by one step.
    """
    source = model.opset_imports.get("", 0)
    targets = [target for target in range(AT_ONCE, opset - 1, -1) if target < source] or [opset]
    outcome = Outcome(source, min(opset, source))
    places: _Places = {}
    if source == AT_ONCE:
        trace: Trace = {node: Location.of(path, node, index) for path, index, node in nodes(model)}
        _settle(model, outcome, trace, {})
        places = _places(model, trace, {})
    for target in targets:
        trace = {}
        done = step(target, STEPS.get(target, LOWERINGS), contrib, trace)
        _add(outcome, done, places)
        if target == AT_ONCE and not outcome.refused:
            _settle(model, outcome, trace, places)
        if outcome.refused:
            break
        places = _places(model, trace, places)
        contrib = "keep"
    return outcome


def _settle(model: ir.Model, outcome: Outcome, trace: Trace, places: _Places) -> None:
    """Take what no rule takes node by node out of a model of opset 11."""
    done = Outcome(AT_ONCE, AT_ONCE)
    done.lowered += [Lowered(place, "decided") for place in settle_branches(model, trace)]
    done.lowered += [Lowered(place, "loop") for place in settle_loops(model, trace)]
    done.lowered += [Lowered(place, "sequence") for place in settle_sequences(model, trace)]
    _add(outcome, done, places)


def _places(model: ir.Model, trace: Trace, before: _Places) -> _Places:
    """Return where each node of the model comes from, by the place where it stands now."""
    found: _Places = {}
    for path, index, node in nodes(model):
        known = trace.get(node)
        if known is not None:
            found[path, index] = before.get((known.graph, known.index), known)
    return found


def _add(outcome: Outcome, done: Outcome, places: _Places) -> None:
    seen = {lowered.location for lowered in outcome.lowered}
    for lowered in done.lowered:
        location = _of_source(lowered.location, places)
        if location not in seen:
            outcome.lowered.append(replace(lowered, location=location))
            seen.add(location)
    outcome.notes += [note for note in done.notes if note not in outcome.notes]
    outcome.refused += list(dict.fromkeys(_told(refused, places) for refused in done.refused))


def _of_source(location: Location, places: _Places) -> Location:
    return places.get((location.graph, location.index), location)


def _told(refused: Diagnostic, places: _Places) -> Diagnostic:
    location = _of_source(refused.location, places)
    if location.op == refused.location.op:
        return replace(refused, location=replace(location, value=refused.location.value))
    text = f"`{location.op}` is written with {refused.location.op}: {refused.message}"
    return replace(refused, location=location, message=text)
