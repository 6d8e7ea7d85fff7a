"""The part of a graph that makes some of its values from others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs

__all__ = ["needed_inputs", "needed_nodes", "read_by"]


def needed_nodes(
    graph: ir.Graph, given: Collection[ir.Value], wanted: Iterable[ir.Value]
) -> list[tuple[int, ir.Node]]:
    """Return the nodes, with their indices, that must run to make `wanted` from `given`."""
    made = {id(value) for value in given}
    needed = {id(value) for value in wanted} - made
    kept = []
    for index, node in reversed(list(enumerate(graph))):
        if any(id(value) in needed for value in node.outputs):
            kept.append((index, node))
            needed.update(id(value) for value in read_by(node) if id(value) not in made)
    return kept[::-1]


def needed_inputs(
    graph: ir.Graph, given: Collection[ir.Value], wanted: Sequence[ir.Value]
) -> list[ir.Value]:
    """Return the inputs of `graph` that must be there, beside `given`, to make `wanted`.

    Inputs that have an initializer need not be fed and are not among them.
    """
    read = {id(value) for value in wanted}
    for _, node in needed_nodes(graph, given, wanted):
        read.update(id(value) for value in read_by(node))
    made = {id(value) for value in given}
    return [
        value
        for value in graph.inputs
        if id(value) in read and id(value) not in made and value.const_value is None
    ]


def read_by(node: ir.Node) -> Iterator[ir.Value]:
    """Yield every value that a node and its bodies read; those made inside are among them."""
    yield from (value for value in node.inputs if value is not None)
    for _, body in subgraphs(node):
        yield from body.outputs
        for inner in body:
            yield from read_by(inner)
