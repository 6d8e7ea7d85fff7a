"""Loop and Scan: what comes out of a body that runs many times, or never."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.ops.view import given_integer, given_integers
from onnx_kvtool.shapes.bodies import at, body_graph, malformed, run_body
from onnx_kvtool.shapes.outcome import Outcome
from onnx_kvtool.symbolic.expressions import Element, Expr, Extent, integer
from onnx_kvtool.symbolic.knowledge import Lost
from onnx_kvtool.symbolic.rules.site import Unknown
from onnx_kvtool.symbolic.simplification import Facts, largest

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext

__all__ = ["loop", "scan"]

_ROUNDS = 12
"""Most times a body is gone through until its states no longer change their shape."""


def loop(run: Forward, node: ir.Node, place: Location, context: GraphContext) -> Sequence[Outcome]:
    """Loop: states keep the sizes that no iteration changes; scans have one row per iteration."""
    body = body_graph(node, "body")
    states = list(node.inputs[2:])
    if body is None or len(body.inputs) != 2 + len(states) or len(body.outputs) < 1 + len(states):
        return [malformed("body")] * len(node.outputs)
    knowledge = run.knowledge
    for value, dtype in zip(body.inputs[:2], (ir.DataType.INT64, ir.DataType.BOOL), strict=True):
        knowledge.types[value] = ir.TensorType(dtype)
        knowledge.shapes[value] = ()
    inner = _fixpoint(
        run, body, body.inputs[2:], states, body.outputs[1 : 1 + len(states)], place, context
    )
    results = [
        _after(run, output, initial, formal, result, place)
        for output, initial, formal, result in zip(
            node.outputs, states, body.inputs[2:], body.outputs[1:], strict=False
        )
    ]
    count = _iterations(node, body, context)
    for index in range(len(states), len(node.outputs)):
        output, row = node.outputs[index], body.outputs[1 + index]
        lost = Lost(at(place, output), "data-dependent", "the number of iterations is not constant")
        rows = knowledge.unknown_size(output, 0, lost) if count is None else count
        results.append(_stacked(run, output, row, rows, 0, place, inner))
    return results


def scan(run: Forward, node: ir.Node, place: Location, context: GraphContext) -> Sequence[Outcome]:
    """Scan-9 and later: states as in Loop, one row of each scanned input and output at a time."""
    body = body_graph(node, "body")
    many = given_integer(node, "num_scan_inputs")
    if context.opset < 9 or body is None or many is None or len(body.inputs) != len(node.inputs):
        return [malformed("body")] * len(node.outputs)
    kept = len(node.inputs) - many
    knowledge = run.knowledge
    input_axes = _axes(node, "scan_input_axes", many)
    length: Expr | None = None
    for formal, actual, axis in zip(
        body.inputs[kept:], node.inputs[kept:], input_axes, strict=False
    ):
        rows = None if actual is None else _sliced(run, formal, actual, axis)
        length = rows if length is None else length
    inner = _fixpoint(
        run, body, body.inputs[:kept], node.inputs[:kept], body.outputs[:kept], place, context
    )
    results = [
        _after(run, output, initial, formal, result, place)
        for output, initial, formal, result in zip(
            node.outputs, node.inputs[:kept], body.inputs, body.outputs, strict=False
        )
    ]
    output_axes = _axes(node, "scan_output_axes", len(node.outputs) - kept)
    for output, row, axis in zip(
        node.outputs[kept:], body.outputs[kept:], output_axes, strict=False
    ):
        lost = Lost(at(place, output), "unknown-input", "the length of the scan is not known")
        rows = knowledge.unknown_size(output, axis, lost) if length is None else length
        results.append(_stacked(run, output, row, rows, axis, place, inner))
    return results


def _axes(node: ir.Node, name: str, count: int) -> Sequence[int]:
    return given_integers(node, name) or [0] * count


def _fixpoint(
    run: Forward,
    body: ir.Graph,
    formals: Sequence[ir.Value],
    actuals: Sequence[ir.Value | None],
    results: Sequence[ir.Value],
    place: Location,
    context: GraphContext,
) -> set[ir.Value]:
    """Go through a body until its states have shapes that hold in every iteration.

    They start with those of the initial values; a size that an iteration changes is unknown.

    Returns:
        The values that the body defines.
    """
    knowledge = run.knowledge
    for formal, actual in zip(formals, actuals, strict=False):
        if actual is not None:
            _copy(run, actual, formal)
    inner: set[ir.Value] = set()
    for _ in range(_ROUNDS):
        conflicts = len(knowledge.conflicts)
        for value in inner:
            context.contents.forget(value)
        inner = run_body(run, body, place, context, "body")
        # Each of them is looked at: one round widens all states that change.
        widened = [_widen(run, f, r, place) for f, r in zip(formals, results, strict=False)]
        if not any(widened):
            return inner
        del knowledge.conflicts[conflicts:]
    for formal in formals:
        knowledge.shapes.pop(formal, None)
        knowledge.lost[formal] = Lost(at(place, formal), "loop", "its shape does not settle")
    for value in inner:
        context.contents.forget(value)
    return run_body(run, body, place, context, "body")


def _copy(run: Forward, actual: ir.Value, formal: ir.Value) -> None:
    knowledge = run.knowledge
    if actual in knowledge.types:
        knowledge.types[formal] = knowledge.types[actual]
    if actual in knowledge.shapes:
        knowledge.shapes[formal] = knowledge.shapes[actual]
    if actual in knowledge.lost:
        knowledge.lost[formal] = knowledge.lost[actual]


def _widen(run: Forward, formal: ir.Value, result: ir.Value, place: Location) -> bool:
    """Make unknown what an iteration changes; return whether there was something."""
    knowledge = run.knowledge
    before, after = knowledge.shapes.get(formal), knowledge.shapes.get(result)
    if before is None:
        return False
    if after is None or len(after) != len(before):
        del knowledge.shapes[formal]
        why = Lost(at(place, formal), "loop", "an iteration changes its rank")
        knowledge.lost[formal] = why if after is not None else knowledge.lost.get(result, why)
        return True
    sizes, changed = list(before), False
    for axis, (old, new) in enumerate(zip(before, after, strict=True)):
        atom = old.atom
        widened = isinstance(atom, Extent) and atom.value is formal
        if not widened and not knowledge.equalities.same(old, new):
            lost = Lost(at(place, formal), "loop", f"an iteration changes its axis {axis}")
            sizes[axis] = knowledge.unknown_size(formal, axis, lost)
            changed = True
    knowledge.shapes[formal] = tuple(sizes)
    return changed


def _after(
    run: Forward,
    output: ir.Value,
    initial: ir.Value | None,
    formal: ir.Value,
    result: ir.Value,
    place: Location,
) -> Outcome:
    """Return what a state is when its loop is over: the initial value, or one of an iteration."""
    knowledge = run.knowledge
    before, after = knowledge.types.get(formal), knowledge.types.get(result)
    type_ = (before or after) if before is None or after is None or before == after else None
    shape = knowledge.shapes.get(formal)
    if shape is None:
        cause = formal if formal in knowledge.lost else initial
        return Outcome(type_, Unknown("unknown-input", "", cause))
    sizes = list(shape)
    for axis, size in enumerate(shape):
        atom = size.atom
        if isinstance(atom, Extent) and atom.value is formal:
            lost = knowledge.lost_sizes.get(atom) or Lost(at(place, output), "loop", "it changes")
            sizes[axis] = knowledge.unknown_size(output, axis, lost)
    return Outcome(type_, tuple(sizes))


def _sliced(run: Forward, formal: ir.Value, actual: ir.Value, axis: int) -> Expr | None:
    """Give the formal input of a scan one row of the actual one; return how many rows there are."""
    knowledge = run.knowledge
    _copy(run, actual, formal)
    shape = knowledge.shapes.get(actual)
    if not shape:
        return None
    place = axis % len(shape)
    knowledge.shapes[formal] = (*shape[:place], *shape[place + 1 :])
    return shape[place]


def _stacked(
    run: Forward,
    output: ir.Value,
    row: ir.Value,
    rows: Expr,
    axis: int,
    place: Location,
    inner: set[ir.Value],
) -> Outcome:
    """Return what the rows of all iterations are together."""
    knowledge = run.knowledge
    type_, shape = knowledge.types.get(row), knowledge.shapes.get(row)
    if shape is None:
        return Outcome(type_, Unknown("unknown-input", "", row))
    place_of_rows = axis % (len(shape) + 1)
    sizes = [*shape[:place_of_rows], rows, *shape[place_of_rows:]]
    for i, size in enumerate(sizes):
        if i != place_of_rows and any(
            isinstance(atom, (Extent, Element)) and atom.value in inner for atom in size.atoms()
        ):
            lost = Lost(at(place, output), "loop", "it may differ between iterations")
            sizes[i] = knowledge.unknown_size(output, i, lost)
    return Outcome(type_, tuple(sizes))


def _iterations(node: ir.Node, body: ir.Graph, context: GraphContext) -> Expr | None:
    """Return how often a Loop runs; None where its condition may end it."""
    limit = node.inputs[0] if node.inputs else None
    start = node.inputs[1] if len(node.inputs) > 1 else None
    if limit is None:
        return None
    first = integer(1) if start is None else context.contents.of(start).scalar()
    again = context.contents.of(body.outputs[0]).scalar()
    passed = context.contents.of(body.inputs[1]).scalar()
    goes_on = again is not None and (again.number == 1 or again == passed)
    trips = context.contents.of(limit).scalar()
    if first is None or first.number != 1 or not goes_on or trips is None:
        return None
    return largest((trips, integer(0)), Facts())
