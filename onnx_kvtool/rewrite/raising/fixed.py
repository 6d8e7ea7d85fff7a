"""The stage of `raise` for updates of caches that have a fixed capacity already."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import nodes, producer, supersede
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.engine.rule import remove_dead
from onnx_kvtool.rewrite.raise_report import CacheSource, InputAdded, RaisedCache, Unraised
from onnx_kvtool.rewrite.raising.arrangement import arranged
from onnx_kvtool.rewrite.raising.in_functions import open_functions, remove_tags
from onnx_kvtool.rewrite.raising.layout import first_of
from onnx_kvtool.rewrite.raising.proof import Batch, narrowed, one_row, write_indices
from onnx_kvtool.rewrite.raising.proving import Plan, Proving, is_candidate
from onnx_kvtool.rewrite.raising.raisings import RAISINGS
from onnx_kvtool.rewrite.raising.stage import (
    InOrder,
    RaiseOutcome,
    RaiseSettings,
    raised,
    scopes_of,
    token_count,
)
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.expressions import ZERO, Element, Expr, text, variable

# The edit: a TensorScatter in the place of a proven update.


Replaced = dict[ir.Value, ir.Value]
"""What took the place of a value that an earlier edit removed."""


def replace_update(
    plan: Plan,
    em: Emitter,
    replaced: Replaced,
    ordered: dict[ir.Value, InOrder],
) -> ir.Node:
    """Replace a proven update by a TensorScatter, in place.

    The present takes the name and the type of the value that had its layout, so that graph outputs
    keep theirs. Readers of the result in another layout get it from the present.

    Args:
        plan: What was proven.
        em: Where to build, at the place of the node; it is committed.
        replaced: Values that earlier edits replaced; those of this one are added.
        ordered: Gets what has the rows of a window in order.

    Returns:
        The TensorScatter.
    """
    node, output, proof, rows = plan.node, plan.found.output, plan.proof, plan.update
    past = replaced.get(plan.past.base, plan.past.base)
    shape = proof.maps.shape(plan.past.base)
    assert shape is not None
    update = arranged(em, replaced.get(rows.base, rows.base), rows.rank, rows.axes, "update")
    batch = Batch(past, shape[0], 0 not in plan.past.axes)
    starts = write_indices(em, plan.start, batch, proof, replaced)
    if starts is not None and proof.is_narrow:
        starts = narrowed(em, starts)
    if starts is not None and starts.shape is None and past.shape is not None:
        starts.shape = ir.Shape([past.shape[0]])
    present = em.op(
        "TensorScatter",
        past,
        update,
        *([] if starts is None else [starts]),
        axis=plan.axis,
        mode=plan.mode,
        hint=node.name or "TensorScatter",
    )
    scatter = em.nodes[-1]
    others = output not in plan.presents and _is_read(plan)
    read = present  # what everybody gets but the caller
    if plan.window is not None and (others or _is_read_in_order(plan)):
        read = _in_order(em, plan, present, replaced, ordered)
    pairs = _presents(em, plan, present, read)
    if others:
        pairs.append((output, arranged(em, read, plan.past.rank, plan.past.axes, "layout")))
    for old, new in reversed(pairs):  # the first of those that one value stands for counts
        new.type, new.shape = old.type or new.type, old.shape or new.shape
        if plan.window is not None and new is present:
            new.shape = past.shape  # that of the source may be longer where a step has more rows
        new.name = old.name
    if read is not present:
        read.type, read.shape = past.type, past.shape
    nodes = em.insert_before(node)
    for old, new in pairs:
        if old.name == new.name:
            new.doc_string = old.doc_string
            new.metadata_props.update(old.metadata_props)
        old.name = None
        if read is not present and old in plan.presents:
            for user, index in tuple(old.uses()):
                user.replace_input_with(index, read)
        supersede(old, new)
        replaced[old] = read if old in plan.presents else new
    for emitted in nodes:
        emitted.metadata_props.update(node.metadata_props)
    if node.name:
        scatter.name, node.name = node.name, None
    scatter.doc_string = node.doc_string
    scatter.device_configurations = node.device_configurations
    return scatter


def _presents(
    em: Emitter, plan: Plan, present: ir.Value, read: ir.Value
) -> list[tuple[ir.Value, ir.Value]]:
    """Pair the values that the present stands for with it, or with a copy under another name."""
    pairs: list[tuple[ir.Value, ir.Value]] = []
    # The one that leaves the graph first: its name is the one to keep.
    for old in sorted(plan.presents, key=lambda value: not value.is_graph_output()):
        new = read if pairs else present
        if pairs and old.is_graph_output():
            new = em.op("Identity", read)
        pairs.append((old, new))
    return pairs


def _is_read_in_order(plan: Plan) -> bool:
    """Return whether a node reads the result, or several outputs are the result."""
    leaving = [old for old in plan.presents if old.is_graph_output()]
    return len(leaving) > 1 or any(old.uses() for old in plan.presents)


def _in_order(
    em: Emitter,
    plan: Plan,
    present: ir.Value,
    replaced: Replaced,
    ordered: dict[ir.Value, InOrder],
) -> ir.Value:
    """Return the rows of a window from the oldest to the newest, as in the source."""
    window = plan.window
    assert window is not None
    past = replaced.get(plan.past.base, plan.past.base)
    behind = window.behind(plan.start)

    size = window.size

    def order() -> ir.Value:
        rows = em.op("Add", [*range(size)], oldest, hint="order")
        return em.op("Mod", rows, [size], hint="order")

    oldest = em.once(("oldest row", behind, size), lambda: one_row(em, behind, plan.proof, past))
    rows = em.once(("order of a window", behind, size), order)
    found = em.op("Gather", present, rows, axis=plan.axis, hint="ordered")
    ordered[found] = InOrder(present, size, rows, oldest)
    return found


def _is_read(plan: Plan) -> bool:
    """Return whether the result is read in the layout of the scatter."""
    output = plan.found.output
    if output.is_graph_output():
        return True
    gone = {value.producer() for value in plan.presents}
    return any(reader not in gone for reader in output.consumers())


def raise_fixed(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Replace every proven update of a fixed cache by a TensorScatter, in place.

    What cannot be proven stays. Return whether anything was replaced; the new nodes are of the
    opset of the result.
    """
    if not any(is_candidate(node) for _, _, node in nodes(model)):
        return False

    def proving_of(one: ir.Model) -> Proving:
        proving = Proving(one, settings.assumptions, model.opset_imports[""], outcome.place)
        proving.run()
        return proving

    def prove(copy: ir.Model) -> tuple[list[Location], list[Unraised]]:
        annotate(copy, fully=True)
        proving = proving_of(copy)
        return [place for place, _ in proving.plans], proving.refused

    elsewhere = open_functions(model, is_candidate, prove, "an update", outcome.notes)
    annotations = annotate(model, fully=True)
    if annotations.failure:
        outcome.notes.append(annotations.failure)
    proving = proving_of(model)
    outcome.refused += [*proving.refused, *elsewhere]
    remove_tags(model)
    if proving.plans:
        outcome.blocked = objections(model, "raise")
        if not outcome.blocked:
            _edit(proving, settings.target(model), outcome)
    proving.forget_sizes()
    annotations.remove()
    return bool(proving.plans)


def _edit(proving: Proving, target: int, outcome: RaiseOutcome) -> None:
    """Carry out all plans, in the order of the graph."""
    scopes = scopes_of(proving.model)
    replaced: Replaced = {}
    old: list[ir.Node] = []
    counted: tuple[Expr, str] | None = None
    for place, plan in proving.plans:
        one, past, proof = plan, plan.past.base, plan.proof
        em = Emitter.at(one.node, scopes, target, "kvtool/raise")
        old += [one.node, *(made for v in one.presents if (made := producer(v)) is not None)]
        if (window := one.window) is not None:
            where: Literal["first", "last"] = "first"
            if window.position is None:
                counted, where = counted or _tokens_before(proving, outcome), "last"
                one = one._replace(start=counted[0])
                proof.say(counted[1])
            outcome.rotated.append(RotatedCache(past.name or "", where, window.size))
            if (counter := first_of(one.start)) is not None and counter.name:
                outcome.positions.append(counter.name)
        scatter = replace_update(one, em, replaced, outcome.ordered)
        pattern, values = RAISINGS[one.node.op_type].name, (*scatter.inputs, None)[:3]
        values += (scatter.outputs[0],)
        done = raised(place, pattern, one.axis, one.mode, values, proof.sentences, proof.assumed)
        outcome.raised.append(done)
        dims = dims_of(scatter.inputs[0])
        rows = None if dims is None else dims[one.axis]
        source: CacheSource = "fixed" if one.window is None else "rolling"
        if scatter.inputs[0] is not None and scatter.inputs[0].is_graph_input():
            # What is written to may be a part of a mask as well.
            outcome.caches.append(RaisedCache(done.past, done.present, rows, one.mode, source))
        outcome.equal_dims += one.implied
        granted = [(kind, value.name or "") for kind, value in proof.granted]
        outcome.positions += [name for kind, name in granted if kind == "contiguous"]
        outcome.is_in_range |= any(kind == "in-range" for kind, _ in granted)
    outcome.equal_dims += proving.assumptions.dims
    outcome.removed += remove_dead(old)


def _tokens_before(proving: Proving, outcome: RaiseOutcome) -> tuple[Expr, str]:
    """Return the position of a step for windows whose source has none, and why it is that.

    It is the start of a cache that keeps all rows, which counts the tokens before; else the input
    that an earlier stage added, or a new one.
    """
    graph = proving.model.graph
    for _, one in proving.plans:
        if one.window is not None or one.mode != "linear" or one.start.axes:
            continue
        if first_of(one.start) in graph.inputs:
            shown = f"`{text(one.start)}`, where `{one.past.base.name}` is written"
            return one.start, f"the tokens before a step are {shown}"
    names = {one.name for one in outcome.inputs_added}
    known = next((v for v in graph.inputs if v.name in names), None)
    if known is None:
        known = token_count(proving.model)
        graph.inputs.append(known)
        added = InputAdded(known.name or "", "int64", (1,), "tokens before this step")
        outcome.inputs_added.append(added)
    why = f"the tokens before a step are the new input `{known.name}`"
    return variable(Element(known, (ZERO,))), why
