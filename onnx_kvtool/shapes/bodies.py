"""If, Loop, Scan and calls of functions: what comes out of the body of a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.table import Table
from onnx_kvtool.core.walk import function_path, step_path, subgraphs
from onnx_kvtool.core.words import shape_text
from onnx_kvtool.guard.exhaustion import MOST_RUN
from onnx_kvtool.ops.traits import WHOLE_TYPES
from onnx_kvtool.ops.view import given_input, given_integer, given_integers
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.dimensions import Shape, shape_words, words
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Atom, Element, Expr, Exprs, Extent
from onnx_kvtool.symbolic.knowledge import Lost
from onnx_kvtool.symbolic.rules.site import Unknown
from onnx_kvtool.symbolic.simplification import Facts, largest

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext


@dataclass(frozen=True, slots=True)
class Outcome:
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
                lost = Lost(at(place, value), "body-input", "nothing says what a body is handed")
                run.knowledge.shapes[value] = tuple(
                    run.knowledge.unknown_size(value, axis, lost)
                    for axis in range(len(value.shape))
                )
        run_body(run, graph, place, context, name)


def at(place: Location, value: ir.Value) -> Location:
    """Return the place of a node with a value."""
    return Location(place.graph, place.node, place.index, place.op, value.name)


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
    results = []
    for index, output in enumerate(node.outputs):
        given = [g.outputs[index] for g in branches if index < len(g.outputs)]
        results.append(_agreed(run, output, given, place))
    return results


def _agreed(run: Forward, output: ir.Value, given: Sequence[ir.Value], place: Location) -> Outcome:
    """Return the facts that are the same for all possible values of the output."""
    knowledge = run.knowledge
    types = [knowledge.types.get(value) for value in given]
    type_ = types[0] if types and all(t == types[0] for t in types) else None
    shapes: list[Shape] = []
    for value in given:
        shape = knowledge.shapes.get(value)
        if shape is None:
            return Outcome(type_, Unknown("unknown-input", "", value))
        shapes.append(shape)
    if not shapes:
        return Outcome(type_, Unknown("malformed", "a branch does not have this output"))
    if len({len(shape) for shape in shapes}) > 1:
        text = " and ".join(shape_text(shape_words(shape) or ()) for shape in shapes)
        return Outcome(type_, Unknown("branches-differ", f"the branches give {text}"))
    sizes = []
    for axis, size in enumerate(shapes[0]):
        others = [shape[axis] for shape in shapes[1:]]
        if all(knowledge.equalities.same(size, other) for other in others):
            sizes.append(size)
            continue
        text = " and ".join(f"`{words(s) or '?'}`" for s in (size, *others))
        lost = Lost(at(place, output), "branches-differ", f"the branches give {text}")
        sizes.append(knowledge.unknown_size(output, axis, lost))
    return Outcome(type_, tuple(sizes))


_ROUNDS = 12
"""Most passes over a body until the shapes of its states no longer change."""


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
    ends = body.inputs[2:], body.outputs[1 : 1 + len(states)]
    inner, results = _carried(run, node, body, states, *ends, place, context)
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
    ends = body.inputs[:kept], body.outputs[:kept]
    inner, results = _carried(run, node, body, node.inputs[:kept], *ends, place, context)
    output_axes = _axes(node, "scan_output_axes", len(node.outputs) - kept)
    for output, row, axis in zip(
        node.outputs[kept:], body.outputs[kept:], output_axes, strict=False
    ):
        lost = Lost(at(place, output), "unknown-input", "the length of the scan is unknown")
        rows = knowledge.unknown_size(output, axis, lost) if length is None else length
        results.append(_stacked(run, output, row, rows, axis, place, inner))
    return results


def _axes(node: ir.Node, name: str, count: int) -> Sequence[int]:
    return given_integers(node, name) or [0] * count


def _carried(
    run: Forward,
    node: ir.Node,
    body: ir.Graph,
    actuals: Sequence[ir.Value | None],
    formals: Sequence[ir.Value],
    results: Sequence[ir.Value],
    place: Location,
    context: GraphContext,
) -> tuple[set[ir.Value], list[Outcome]]:
    """Return the values that the body of a loop defines, and the final states.

    Args:
        run: The pass.
        node: The loop.
        body: Its body.
        actuals: The initial states.
        formals: The inputs of the body for them.
        results: The outputs of the body for them.
        place: The place of the node.
        context: The context of its graph.
    """
    inner = _fixpoint(run, body, actuals, formals, results, place, context)
    states = zip(node.outputs, actuals, formals, results, strict=False)
    return inner, [_after(run, *state, place) for state in states]


def _fixpoint(
    run: Forward,
    body: ir.Graph,
    actuals: Sequence[ir.Value | None],
    formals: Sequence[ir.Value],
    results: Sequence[ir.Value],
    place: Location,
    context: GraphContext,
) -> set[ir.Value]:
    """Infer a body until the shapes of its states hold in every iteration.

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
    """Make sizes unknown that an iteration changes; return whether there were any."""
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
    """Return the final state of a loop: the initial value, or the result of an iteration."""
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
    """Return the rows of all iterations as one output."""
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
    """Return how often a Loop runs; None if its condition may end it."""
    limit = given_input(node, 0)
    start = given_input(node, 1)
    if limit is None:
        return None
    first = ONE if start is None else context.contents.of(start).scalar()
    again = context.contents.of(body.outputs[0]).scalar()
    passed = context.contents.of(body.inputs[1]).scalar()
    goes_on = again is not None and (again.number == 1 or again == passed)
    trips = context.contents.of(limit).scalar()
    if first is None or first.number != 1 or not goes_on or trips is None:
        return None
    return largest((trips, ZERO), Facts())


# The operators with bodies.


CONTROL: Table[str, Callable[..., Sequence[Outcome]]] = Table(
    "operator with bodies", [("If", if_), ("Loop", loop), ("Scan", scan)]
)
"""Functions that infer the outputs, by operator of the default domain."""


# Calls of model-local functions.


Made: TypeAlias = "list[tuple[Outcome, IndexMap | None]]"
"""Type, shape and content of each output of a call; only integers have a known content."""


def call(
    run: Forward,
    node: ir.Node,
    function: ir.Function,
    context: GraphContext,
    *,
    is_bound: bool = False,
) -> Sequence[Outcome]:
    """Return the outputs of a call of a function.

    If it `is_bound`, it was made for the attributes of the node, and refers to none.

    Calls with the same arguments share one pass over the body, so that nested functions take no
    exponential time. A result that depends on more (a size that only a run determines, a graph in
    an attribute) is not shared.
    """
    if function in run.calls:
        run.is_circular = True
        circle = f"`{function.domain}::{function.name}` calls itself"
        return [Outcome(None, Unknown("recursive-function", circle))] * len(node.outputs)
    if run.is_too_large:
        size = f"the functions of the model expand to more than {MOST_RUN} nodes"
        return [Outcome(None, Unknown("too-many-calls", size))] * len(node.outputs)
    imports = {**context.imports, **function.opset_imports}
    given = [_given(run, value, context) for value in node.inputs]
    attributes = {} if is_bound else node.attributes
    around = (imports, context.conditional)
    signature = _signature(run, node, function, attributes, around, given)
    _, made = run.made.get(signature, (node, None)) if signature is not None else (node, None)
    if made is None:
        conflicts = len(run.knowledge.conflicts)
        made = _go_through(run, node, function, context, imports)
        is_plain = not run.is_circular and conflicts == len(run.knowledge.conflicts)
        if signature is not None and is_plain and _rests_on(made, given):
            run.made[signature] = node, made
    for output, (_, content) in zip(node.outputs, made, strict=False):
        if content is not None:
            context.contents.put(output, content)
    return [outcome for outcome, _ in made]


@dataclass(frozen=True, slots=True)
class _Given:
    """The known facts of an input of a call."""

    type: ir.TypeProtocol | None
    shape: Shape | None
    lost: Lost | None
    content: IndexMap | None

    def atoms(self) -> Iterator[Atom]:
        for expr in (*(self.shape or ()), *_sizes(self.content)):
            yield from expr.atoms()


def _sizes(content: IndexMap | None) -> Exprs:
    return () if content is None else (*content.parts, *(content.shape or ()))


def _given(run: Forward, value: ir.Value | None, context: GraphContext) -> _Given | None:
    """Return the known facts of an input; None if it is absent."""
    if value is None:
        return None
    known = run.knowledge
    type_ = known.types.get(value)
    whole = isinstance(type_, ir.TensorType) and type_.dtype in WHOLE_TYPES
    content = context.contents.of(value) if whole else None
    return _Given(type_, known.shapes.get(value), known.lost.get(value), content)


def _signature(
    run: Forward,
    node: ir.Node,
    function: ir.Function,
    attributes: Mapping[str, ir.Attr],
    around: tuple[Mapping[str, int], bool],
    given: Sequence[_Given | None],
) -> Hashable | None:
    """Return everything that the result of a call can depend on; None if it cannot be compared."""
    # Types compare as equal although their denotations differ, also inside other types.
    if any(
        g and g.type and (type(g.type) is not ir.TensorType or g.type.denotation) for g in given
    ):
        return None
    if any(a.is_ref() or a.type in _GRAPHS for a in attributes.values()):
        return None
    told = tuple(
        (name, a.type, a.value if a.type in _COMPARED else id(a.value))
        for name, a in attributes.items()
    )
    known, (imports, conditional) = run.knowledge, around
    state = (known.equalities.learned, len(known.legal), len(known.assumed), conditional)
    versions = tuple(imports.items())
    return function.identifier(), len(node.outputs), told, versions, state, tuple(given)


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_COMPARED = (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.STRING)
"""Attributes that are compared by value, all others by identity."""


def _rests_on(made: Made, given: Sequence[_Given | None]) -> bool:
    """Return whether the result contains no unknown size that each call has of its own."""
    before = {atom for one in given if one is not None for atom in one.atoms()}
    return all(
        atom in before or not isinstance(atom, Extent | Element)
        for outcome, content in made
        for expr in (
            *_sizes(content),
            *(() if isinstance(outcome.shape, Unknown) else outcome.shape),
        )
        for atom in expr.atoms()
    )


def _go_through(
    run: Forward,
    node: ir.Node,
    function: ir.Function,
    context: GraphContext,
    imports: Mapping[str, int],
) -> Made:
    """Infer a copy of the body for one call."""
    try:
        body = function.graph.clone(allow_outer_scope_values=True)
    except (RuntimeError, KeyError, ValueError):  # what onnx_ir 1.1.0 raises depends on the depth
        name = f"the body of `{function.domain}::{function.name}` reads what nothing produces"
        return [(Outcome(None, Unknown("malformed", name)), None)] * len(node.outputs)
    attributes = {**function.attributes, **node.attributes}
    for inner in body:
        _bind(inner, attributes)
    inside = replace(
        context,
        path=function_path(*function.identifier()),
        imports=imports,
        contents=run.contents(imports.get("", 1)),
        is_main=False,
        in_function=True,
    )
    for index, formal in enumerate(body.inputs):
        actual = given_input(node, index)
        if actual is None:
            for use in tuple(formal.uses()):
                use.node.replace_input_with(use.idx, None)
        else:
            _pass(run, actual, formal, context, inside)
    run.calls.append(function)
    run.graph(body, inside)
    run.calls.pop()
    made: Made = []
    for result, _ in zip(body.outputs, node.outputs, strict=False):
        type_ = run.knowledge.types.get(result)
        shape = run.knowledge.shapes.get(result)
        unknown = Unknown("unknown-input", "", result)
        outcome = Outcome(type_, unknown if shape is None else shape)
        whole = isinstance(type_, ir.TensorType) and type_.dtype in WHOLE_TYPES
        made.append((outcome, inside.contents.of(result) if whole else None))
    return made


def _pass(
    run: Forward, actual: ir.Value, formal: ir.Value, context: GraphContext, inside: GraphContext
) -> None:
    """Make a formal input what the call gives it."""
    formal.type = run.knowledge.types.get(actual)
    _copy(run, actual, formal)
    if formal.dtype in WHOLE_TYPES:
        inside.contents.put(formal, context.contents.of(actual))


def _bind(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> None:
    """Replace references to parameters, also in bodies; remove those without a value."""
    for name, attribute in tuple(node.attributes.items()):
        if not attribute.is_ref():
            continue
        actual = attributes.get(attribute.ref_attr_name or "")
        if actual is None or actual.value is None:
            del node.attributes[name]
        else:
            node.attributes[name] = ir.Attr(name, actual.type, actual.value)
    for output in node.outputs:
        output.type = output.shape = None
    for _, graph in subgraphs(node):
        for inner in graph:
            _bind(inner, attributes)
