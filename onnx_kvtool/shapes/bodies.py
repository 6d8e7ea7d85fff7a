"""Going through the body of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import step_path, subgraphs
from onnx_kvtool.shapes.outcome import Outcome
from onnx_kvtool.symbolic.knowledge import Lost
from onnx_kvtool.symbolic.rules.site import Unknown

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext

__all__ = ["at", "body_graph", "malformed", "run_body", "run_foreign_bodies"]


def body_graph(node: ir.Node, name: str) -> ir.Graph | None:
    """Return the body that the attribute `name` holds; None where there is none."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.GRAPH:
        return None
    return attribute.as_graph()


def malformed(name: str) -> Outcome:
    """Return what is known of an output of a node whose body `name` is of no use: nothing."""
    return Outcome(None, Unknown("malformed", f"`{name}` is absent or does not fit the node"))


def run_body(
    run: Forward, graph: ir.Graph, place: Location, context: GraphContext, name: str
) -> set[ir.Value]:
    """Go through a body; return the values that it defines."""
    before = len(run.values)
    path = step_path(context.path, place.node, place.index or 0, name)
    for value in graph.inputs:
        if not context.in_function:
            run.values.setdefault(value, Location(path, value=value.name))
        if value.type is None:
            value.type = run.knowledge.types.get(value)
    run.graph(graph, context.body(path))
    return {*graph.inputs, *list(run.values)[before:], *_defined(graph)}


def run_foreign_bodies(run: Forward, node: ir.Node, place: Location, context: GraphContext) -> None:
    """Go through the bodies of an operator of which nobody says what it hands them.

    Types and ranks of their inputs are those that the file declares. Sizes are not: a name that
    stands for another size in the graph around it would make these equal.
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


def _defined(graph: ir.Graph) -> set[ir.Value]:
    return {output for node in graph for output in node.outputs}


def at(place: Location, value: ir.Value) -> Location:
    """Return the place of a node with a value."""
    return Location(place.graph, place.node, place.index, place.op, value.name)
