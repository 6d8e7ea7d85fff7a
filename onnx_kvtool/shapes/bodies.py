"""If, Loop and Scan: the outputs of a node from those of its bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.walk import step_path, subgraphs
from onnx_kvtool.core.words import shape_text
from onnx_kvtool.ops.view import given_input, given_integer, given_integers
from onnx_kvtool.symbolic.dimensions import Shape, shape_words, words
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Element, Expr, Extent
from onnx_kvtool.symbolic.knowledge import Lost
from onnx_kvtool.symbolic.rules.site import Unknown, changed
from onnx_kvtool.symbolic.simplification import largest

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext


class Outcome(NamedTuple):
    """The type and shape that a rule gives an output.

    Attributes:
        type: Its type; None if unknown.
        shape: Its shape, or why its rank is unknown; ignored for an output that is no tensor.
    """

    type: ir.TypeProtocol | None
    shape: Shape | Unknown


# Going through the body of a node.


def body_graph(node: ir.Node, name: str) -> ir.Graph | None:
    """Return the body in the attribute `name`; None if there is none."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.GRAPH:
        return None
    return attribute.as_graph()


def malformed(name: str) -> Outcome:
    """Return an unknown output, because the body `name` is missing or wrong."""
    return Outcome(None, Unknown("malformed", f"`{name}` is absent or does not fit the node"))


def run_body(
    run: Forward, graph: ir.Graph, place: Location, context: GraphContext, name: str
) -> set[ir.Value]:
    """Infer a body; return the values that it defines."""
    before = len(run.values)
    path = step_path(context.path, place.node, place.index or 0, name)
    for value in graph.inputs:
        if not context.in_function:
            run.values.setdefault(value, Location(path, value=value.name))
        if value.type is None:
            value.type = run.knowledge.types.get(value)
    run.graph(graph, context.body(path))
    return {
        *graph.inputs,
        *list(run.values)[before:],
        *{output for node in graph for output in node.outputs},
    }


def run_foreign_bodies(run: Forward, node: ir.Node, place: Location, context: GraphContext) -> None:
    """Infer the bodies of an operator that passes them unknown arguments.

    The file declares the types and ranks of their inputs. Declared sizes do not count: the outer
    graph may use the same name for another size.
    """
    for name, graph in subgraphs(node):
        for value in graph.inputs:
            if value.type is not None:
                run.knowledge.types[value] = value.type
            if value.shape is not None:
                lost = Lost(
                    place.of_value(value), "body-input", "nothing says what a body is handed"
                )
                run.knowledge.shapes[value] = tuple(
                    run.knowledge.unknown_size(value, axis, lost)
                    for axis in range(len(value.shape))
                )
        run_body(run, graph, place, context, name)


def if_(run: Forward, node: ir.Node, place: Location, context: GraphContext) -> Sequence[Outcome]:
    """If: the facts that both branches share; those of one branch if the condition is constant."""
    branches = []
    for name in ("then_branch", "else_branch"):
        graph = body_graph(node, name)
        if graph is None:
            return [malformed(name)] * len(node.outputs)
        run_body(run, graph, place, context, name)
        branches.append(graph)
    condition = given_input(node, 0)
    content = None if condition is None else context.contents.of(condition).scalar()
    if content is not None and content.number is not None:
        branches = [branches[0] if content.number else branches[1]]
    return [
        _agreed(run, output, [g.outputs[index] for g in branches if index < len(g.outputs)], place)
        for index, output in enumerate(node.outputs)
    ]


def _agreed(run: Forward, output: ir.Value, given: Sequence[ir.Value], place: Location) -> Outcome:
    """Return the facts that are the same for all possible values of the output."""
    knowledge = run.knowledge
    types = [knowledge.types.get(value) for value in given]
    type_ = types[0] if types and all(t == types[0] for t in types) else None
    unknown = next((value for value in given if value not in knowledge.shapes), None)
    if unknown is not None:
        return Outcome(type_, Unknown("unknown-input", "", unknown))
    known = [knowledge.shapes[value] for value in given]
    if not known:
        return Outcome(type_, Unknown("malformed", "a branch does not have this output"))
    if len({len(shape) for shape in known}) > 1:
        text = " and ".join(shape_text(shape_words(shape)) for shape in known)
        return Outcome(type_, Unknown("branches-differ", f"the branches give {text}"))
    sizes = list(known[0])
    for axis, (size, *others) in enumerate(zip(*known, strict=True)):
        if all(knowledge.equalities.same(size, other) for other in others):
            continue
        text = " and ".join(f"`{words(s) or '?'}`" for s in (size, *others))
        lost = Lost(place.of_value(output), "branches-differ", f"the branches give {text}")
        sizes[axis] = knowledge.unknown_size(output, axis, lost)
    return Outcome(type_, tuple(sizes))


_ROUNDS = 12
"""Most passes over a body until the shapes of its states no longer change."""


@dataclass(slots=True)
class _Iterated:
    """A Loop or Scan with its body.

    Attributes:
        run: The pass.
        node: The node.
        body: Its body.
        place: The place of the node.
        context: The context of its graph.
        inner: The values that the body defines.
    """

    run: Forward
    node: ir.Node
    body: ir.Graph
    place: Location
    context: GraphContext
    inner: set[ir.Value] = field(default_factory=set)

    def unknown(self, value: ir.Value, axis: int, why: str, code: str = "loop") -> Expr:
        """Return an unknown size of a value, and remember the reason."""
        return self.run.knowledge.unknown_size(
            value, axis, Lost(self.place.of_value(value), code, why)
        )

    def infer(self) -> None:
        """Go through the body anew."""
        for value in self.inner:
            self.context.contents.forget(value)
        self.inner = run_body(self.run, self.body, self.place, self.context, "body")

    def carried(
        self,
        actuals: Sequence[ir.Value | None],
        formals: Sequence[ir.Value],
        results: Sequence[ir.Value],
    ) -> list[Outcome]:
        """Infer the body until the shapes of its states hold in every iteration.

        They start with those of the initial values; a size that an iteration changes is unknown.

        Args:
            actuals: The initial states.
            formals: The inputs of the body for them.
            results: The outputs of the body for them.

        Returns:
            The final states.
        """
        knowledge = self.run.knowledge
        for formal, actual in zip(formals, actuals, strict=False):
            if actual is not None:
                hand_in(self.run, actual, formal)
        for _ in range(_ROUNDS):
            conflicts = len(knowledge.conflicts)
            self.infer()
            # Each of them is looked at: one round widens all states that change.
            widened = [self._widen(*pair) for pair in zip(formals, results, strict=False)]
            if not any(widened):
                break
            del knowledge.conflicts[conflicts:]
        else:
            for formal in formals:
                knowledge.shapes.pop(formal, None)
                place = self.place.of_value(formal)
                knowledge.lost[formal] = Lost(place, "loop", "its shape does not settle")
            self.infer()
        states = zip(self.node.outputs, actuals, formals, results, strict=False)
        return [self._after(*state) for state in states]

    def _widen(self, formal: ir.Value, result: ir.Value) -> bool:
        """Make sizes unknown that an iteration changes; return whether there were any."""
        knowledge = self.run.knowledge
        before, after = knowledge.shapes.get(formal), knowledge.shapes.get(result)
        if before is None:
            return False
        if after is None or len(after) != len(before):
            del knowledge.shapes[formal]
            why = Lost(self.place.of_value(formal), "loop", "an iteration changes its rank")
            knowledge.lost[formal] = why if after is not None else knowledge.lost.get(result, why)
            return True
        sizes = list(before)
        for axis, (old, new) in enumerate(zip(before, after, strict=True)):
            if not _is_of(old, formal) and not knowledge.equalities.same(old, new):
                sizes[axis] = self.unknown(formal, axis, f"an iteration changes its axis {axis}")
        knowledge.shapes[formal] = tuple(sizes)
        return tuple(sizes) != before

    def _after(
        self, output: ir.Value, initial: ir.Value | None, formal: ir.Value, result: ir.Value
    ) -> Outcome:
        """Return the final state of a loop: the initial value, or the result of an iteration."""
        knowledge = self.run.knowledge
        before, after = knowledge.types.get(formal), knowledge.types.get(result)
        type_ = (before or after) if before is None or after is None or before == after else None
        shape = knowledge.shapes.get(formal)
        if shape is None:
            cause = formal if formal in knowledge.lost else initial
            return Outcome(type_, Unknown("unknown-input", "", cause))
        changes = Lost(self.place.of_value(output), "loop", "it changes")
        sizes = (
            size
            if (atom := _is_of(size, formal)) is None
            else knowledge.unknown_size(output, axis, knowledge.lost_sizes.get(atom, changes))
            for axis, size in enumerate(shape)
        )
        return Outcome(type_, tuple(sizes))

    def sliced(self, formal: ir.Value, actual: ir.Value, axis: int) -> Expr | None:
        """Give the formal input one row of the actual one; return how many rows there are."""
        knowledge = self.run.knowledge
        hand_in(self.run, actual, formal)
        shape = knowledge.shapes.get(actual)
        if not shape:
            return None
        place = axis % len(shape)
        knowledge.shapes[formal] = changed(shape, place)
        return shape[place]

    def stacked(self, output: ir.Value, row: ir.Value, rows: Expr, axis: int) -> Outcome:
        """Return the rows of all iterations as one output."""
        knowledge = self.run.knowledge
        type_, shape = knowledge.types.get(row), knowledge.shapes.get(row)
        if shape is None:
            return Outcome(type_, Unknown("unknown-input", "", row))
        place = axis % (len(shape) + 1)
        sizes = [*shape[:place], rows, *shape[place:]]
        for i, size in enumerate(sizes):
            atoms = () if i == place else size.atoms()
            if any(isinstance(a, Extent | Element) and a.value in self.inner for a in atoms):
                sizes[i] = self.unknown(output, i, "it may differ between iterations")
        return Outcome(type_, tuple(sizes))


def _is_of(size: Expr, value: ir.Value) -> Extent | None:
    """Return what stands for an unknown size of a value; None for any other size."""
    atom = size.atom
    return atom if isinstance(atom, Extent) and atom.value is value else None


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
    all_ = _Iterated(run, node, body, place, context)
    results = all_.carried(states, body.inputs[2:], body.outputs[1 : 1 + len(states)])
    count, why = _iterations(node, body, context), "the number of iterations is not constant"
    for index in range(len(states), len(node.outputs)):
        output, row = node.outputs[index], body.outputs[1 + index]
        rows = all_.unknown(output, 0, why, "data-dependent") if count is None else count
        results.append(all_.stacked(output, row, rows, 0))
    return results


def scan(run: Forward, node: ir.Node, place: Location, context: GraphContext) -> Sequence[Outcome]:
    """Scan-9 and later: states as in Loop, one row of each scanned input and output at a time."""
    body = body_graph(node, "body")
    many = given_integer(node, "num_scan_inputs")
    if context.opset < 9 or body is None or many is None or len(body.inputs) != len(node.inputs):
        return [malformed("body")] * len(node.outputs)
    kept = len(node.inputs) - many
    all_ = _Iterated(run, node, body, place, context)
    length: Expr | None = None
    input_axes = given_integers(node, "scan_input_axes") or [0] * many
    for formal, actual, axis in zip(
        body.inputs[kept:], node.inputs[kept:], input_axes, strict=False
    ):
        rows = None if actual is None else all_.sliced(formal, actual, axis)
        length = rows if length is None else length
    results = all_.carried(node.inputs[:kept], body.inputs[:kept], body.outputs[:kept])
    output_axes = given_integers(node, "scan_output_axes") or [0] * (len(node.outputs) - kept)
    why = "the length of the scan is unknown"
    for output, row, axis in zip(
        node.outputs[kept:], body.outputs[kept:], output_axes, strict=False
    ):
        known = all_.unknown(output, axis, why, "unknown-input") if length is None else length
        results.append(all_.stacked(output, row, known, axis))
    return results


def hand_in(run: Forward, actual: ir.Value, formal: ir.Value) -> None:
    """Give an input of a body what is known of the value that it gets."""
    knowledge = run.knowledge
    if actual in knowledge.types:
        knowledge.types[formal] = knowledge.types[actual]
    if actual in knowledge.shapes:
        knowledge.shapes[formal] = knowledge.shapes[actual]
    if actual in knowledge.lost:
        knowledge.lost[formal] = knowledge.lost[actual]


def _iterations(node: ir.Node, body: ir.Graph, context: GraphContext) -> Expr | None:
    """Return how often a Loop runs; None if its condition may end it."""

    def scalar(value: ir.Value | None) -> Expr | None:
        return None if value is None else context.contents.of(value).scalar()

    start, trips = given_input(node, 1), scalar(given_input(node, 0))
    first = ONE if start is None else scalar(start)
    again = scalar(body.outputs[0])
    goes_on = again is not None and (again.number == 1 or again == scalar(body.inputs[1]))
    if first is None or first.number != 1 or not goes_on or trips is None:
        return None
    return largest((trips, ZERO))


# The operators with bodies.


CONTROL: Table[str, Callable[..., Sequence[Outcome]]] = Table(
    "operator with bodies", [("If", if_), ("Loop", loop), ("Scan", scan)]
)
"""Functions that infer the outputs, by operator of the default domain."""
