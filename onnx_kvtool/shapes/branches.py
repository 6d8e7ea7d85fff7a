"""If: what comes out of two branches of which one runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.shapes.bodies import at, body_graph, malformed, run_body
from onnx_kvtool.shapes.outcome import Outcome
from onnx_kvtool.symbolic.dimensions import Shape, shape_words, words
from onnx_kvtool.symbolic.knowledge import Lost
from onnx_kvtool.symbolic.rules.site import Unknown

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext

__all__ = ["if_"]


def if_(run: Forward, node: ir.Node, place: Location, context: GraphContext) -> Sequence[Outcome]:
    """If: what both branches agree on; a condition that is constant leaves one of them."""
    branches = []
    for name in ("then_branch", "else_branch"):
        graph = body_graph(node, name)
        if graph is None:
            return [malformed(name)] * len(node.outputs)
        run_body(run, graph, place, context, name)
        branches.append(graph)
    condition = node.inputs[0] if node.inputs else None
    content = None if condition is None else context.contents.of(condition).scalar()
    if content is not None and content.number is not None:
        branches = [branches[0] if content.number else branches[1]]
    results = []
    for index, output in enumerate(node.outputs):
        given = [g.outputs[index] for g in branches if index < len(g.outputs)]
        results.append(_agreed(run, output, given, place))
    return results


def _agreed(run: Forward, output: ir.Value, given: Sequence[ir.Value], place: Location) -> Outcome:
    """Return what holds whichever of some values the output is."""
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
        return Outcome(type_, Unknown("malformed", "a branch lacks this output"))
    if len({len(shape) for shape in shapes}) > 1:
        text = " and ".join(_text(shape) for shape in shapes)
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


def _text(shape: Shape) -> str:
    return "(" + ", ".join("?" if d is None else str(d) for d in shape_words(shape) or ()) + ")"
