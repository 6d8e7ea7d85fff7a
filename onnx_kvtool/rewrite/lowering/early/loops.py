"""Conditions, and steps of a Scan or Loop as one body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.choices import ContribChoice
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.emitter import Names
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.rewrite.engine.expand import decide_branches
from onnx_kvtool.rewrite.engine.inline import remove_unused
from onnx_kvtool.rewrite.engine.rule import RewriteRule
from onnx_kvtool.rewrite.lowering.early.sequences import settle_sequences
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.report import Lowered, Outcome
from onnx_kvtool.shapes.annotations import annotate

# If and Loop as opsets below 11 take them: branches of one shape, and something to carry.


_Trace = Mapping[ir.Node, Location]
_CARRIED = "kvtool/carried"


def settle_branches(model: ir.Model, trace: _Trace) -> list[Location]:
    """Replace each If with a constant condition by its branch, in place; return their places."""
    conditions = [node.inputs[0] for node in _all(model, "If")]
    if not conditions:
        return []
    annotations = annotate(model, lambda node: Trait.GIVES_SIZES in traits(node), fully=True)
    decided = decide_branches(model, ConstantFolder())
    annotations.remove()
    for condition in conditions:
        if condition is not None:
            remove_unused(condition)
    return [trace[node] for node in decided if node in trace]


def settle_loops(model: ir.Model, trace: dict[ir.Node, Location]) -> list[Location]:
    """Let each Loop without carried values carry a constant, in place; return their places.

    `trace` gets the new nodes with the place of the old ones.
    """
    names, places, first = Names(model), [], None
    for node in _all(model, "Loop"):
        body = node.attributes["body"].as_graph()
        if len(body.inputs) > 2:
            continue
        if first is None:
            first = _carried(names.fresh(_CARRIED))
            first.const_value = ir.tensor(np.zeros((), np.int64), name=first.name)
            model.graph.register_initializer(first)
        loop = _with_carried(node, body, first, names)
        place = trace.get(node)
        if place is not None:
            trace[loop] = place
            places.append(place)
    return places


def _with_carried(node: ir.Node, body: ir.Graph, first: ir.Value, names: Names) -> ir.Node:
    """Give a Loop without loop-carried values a constant one."""
    given = _carried(names.fresh(_CARRIED))
    passed = ir.Node("", "Identity", [given], name=names.fresh(_CARRIED), version=node.version)
    passed.outputs[0].name = names.fresh(_CARRIED)
    passed.outputs[0].type = given.type
    passed.outputs[0].shape = given.shape
    body.append(passed)
    body.inputs.append(given)
    body.outputs.insert(1, passed.outputs[0])
    limits = [*node.inputs, None, None][:2]
    attributes = list(node.attributes.values())
    loop = ir.Node(
        "",
        "Loop",
        [*limits, first],
        attributes,
        num_outputs=len(node.outputs) + 1,
        version=node.version,
        name=node.name,
    )
    loop.metadata_props.update(node.metadata_props)
    loop.outputs[0].name = names.fresh(_CARRIED)
    graph = node.graph
    assert graph is not None
    ir.convenience.replace_nodes_and_values(
        graph,
        insertion_point=node,
        old_nodes=[node],
        new_nodes=[loop],
        old_values=node.outputs,
        new_values=loop.outputs[1:],
    )
    return loop


def _carried(name: str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))


def _all(model: ir.Model, op_type: str) -> list[ir.Node]:
    return [n for _, _, n in nodes(model) if n.op_type == op_type and is_standard(n)]


# Lowering below opset 11: to 11 by the usual rules, and on from there one opset at a time.
#
# What a rule writes for opset 11 is lowered like any node of the source, with types and shapes
# inferred anew; what is said of it is said of the node of the source that it was written for.


AT_ONCE = 11
"""The lowest opset that a model is lowered to in one step."""

Trace = dict[ir.Node, Location]
Step = Callable[
    [int, Mapping[str, RewriteRule], ContribChoice | None, Trace],
    Outcome,
]
"""Lowers the model to an opset by a table of rules, and notes where each node comes from."""

_Places = dict[tuple[str, int | None], Location]


def in_steps(model: ir.Model, opset: int, contrib: ContribChoice | None, step: Step) -> Outcome:
    """Lower a model to an opset below 11, in place, by calls of `step`."""
    from onnx_kvtool.rewrite.lowering.early.steps import STEPS

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
