"""Edits that fixes are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.symbolic.dimensions import Dim

__all__ = ["convert_input"]

_MADE = "onnx_kvtool.lint.made"


def convert_input(
    root: ir.Graph,
    node: ir.Node,
    index: int,
    hint: str,
    dtype: ir.DataType | None,
    dims: Sequence[Dim],
    build: Callable[[ir.Value], Sequence[ir.Node]],
) -> None:
    """Give a node another value in the place of one of its inputs, computed from it.

    The new nodes stand right behind the node that produces the input, or first in the graph of
    `node` where none of its nodes does, and serve every node of the graph that asks for the same.

    Args:
        root: The main graph, or the graph of the function, in which the node stands; the names of
            what is new are unique in it.
        node: The node; nothing happens where it is in no graph or lacks the input.
        index: Which input.
        hint: What is done to the input; the new value is called after it.
        dtype: Element type of the new value.
        dims: Dimensions of the new value.
        build: Makes the new nodes from the old value; the first output of the last is the new one.
    """
    graph = node.graph
    old = node.inputs[index] if index < len(node.inputs) else None
    if graph is None or old is None:
        return
    for user, _ in old.uses():
        made_before = user.meta.get(_MADE)
        if user.graph is graph and made_before is not None and made_before[0] == hint:
            node.replace_input_with(index, made_before[1])
            return
    made = list(build(old))
    new = made[-1].outputs[0]
    new.type = None if dtype is None else ir.TensorType(dtype)
    new.shape = ir.Shape(list(dims))
    taken = set(_names(root))
    new.name = _free(f"{old.name}_{hint}", taken)
    for one in made:
        one.name = _free(f"{new.name}/{one.op_type}", taken)
        for output in one.outputs:
            output.name = output.name or _free(f"{one.name}_output", taken)
        if old in one.inputs:
            one.meta[_MADE] = (hint, new)
    producer = old.producer()
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, made)
    else:
        graph.insert_before(graph[0], made)
    node.replace_input_with(index, new)


def _names(graph: ir.Graph) -> Iterator[str | None]:
    """Yield the names of the nodes and values of a graph and of the graphs inside it."""
    for value in (*graph.inputs, *graph.initializers.values()):
        yield value.name
    for node in graph:
        yield node.name
        for output in node.outputs:
            yield output.name
        for _, body in subgraphs(node):
            yield from _names(body)


def _free(name: str, taken: set[str | None]) -> str:
    found, count = name, 1
    while found in taken:
        found, count = f"{name}_{count}", count + 1
    taken.add(found)
    return found
