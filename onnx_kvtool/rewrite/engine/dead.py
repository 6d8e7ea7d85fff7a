"""Removing what nobody reads any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnx_kvtool.core.walk import graphs
from onnx_kvtool.emit.emitter import release

__all__ = ["constants_of", "remove_dead", "remove_unread_constants"]


def remove_dead(
    nodes: Iterable[ir.Node], stays: Callable[[ir.Node], bool] = lambda node: False
) -> int:
    """Remove nodes of which no output is read, then what only they read, and so on upwards.

    Nodes that were dead before and served nobody stay, as does everything that is read elsewhere.
    A constant that only removed nodes read goes too, unless the caller may supply it.

    Args:
        nodes: Where to start.
        stays: Which nodes stay even so.

    Returns:
        How many nodes were removed.
    """
    pending = list(nodes)
    dead: dict[ir.Graph, dict[ir.Node, None]] = {}
    while pending:
        node = pending.pop()
        graph = node.graph
        if graph is None or node in dead.setdefault(graph, {}):
            continue
        if any(_is_needed(output) for output in node.outputs) or stays(node):
            continue
        dead[graph][node] = None
        for value in release(node):
            producer = value.producer()
            if producer is not None:
                pending.append(producer)
            elif value.is_initializer() and not value.is_graph_input() and not _is_needed(value):
                holder = value.graph
                if holder is not None and value.name is not None:
                    holder.initializers.pop(value.name, None)
    # At once, because each removal looks at all outputs of the graph.
    for graph, gone in dead.items():
        graph.remove(gone)
    return sum(map(len, dead.values()))


def constants_of(model: ir.Model) -> set[ir.Value]:
    """Return the initializers of all graphs."""
    return {value for _, graph in graphs(model) for value in graph.initializers.values()}


def remove_unread_constants(model: ir.Model, before: set[ir.Value]) -> None:
    """Remove initializers that nobody reads, but for those that were there `before`, in place."""
    for _, graph in graphs(model):
        for name, value in tuple(graph.initializers.items()):
            if value not in before and not _is_needed(value):
                del graph.initializers[name]


def _is_needed(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
