"""How large a model is with every call replaced by the body of its function."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.guard.fault import Fault

FAULT = Fault(
    library="onnxruntime",
    seen="1.31.1",
    what="writes the body of a function in place of each call of it, and would be busy for days"
    " with forty functions of two calls each, as the inference of onnx would",
    instead="counts the nodes first, and does not load or infer a model of too many",
)

MOST_NODES = 1_000_000
"""Nodes. onnx's inference goes through the body of a function at every call of it; forty functions
of two calls each would keep it busy for days."""

MOST_RUN = 200_000
"""Nodes of functions and graphs that are gone through one by one in Python, or loaded by a runtime,
which takes tens of microseconds for each."""

_Key = tuple[str, str, str]


def expanded_nodes(model: ir.Model) -> int:
    """Return the number of nodes, those of a function counted at each of its calls.

    Linear in the nodes of the model. A function that calls itself counts as nothing where it does.
    """
    sizes: dict[_Key, int] = {}
    for key in model.functions:
        _size(key, model.functions, sizes)
    return _count(model.graph, model.functions, sizes)


def _size(key: _Key, functions: Mapping[_Key, ir.Function], sizes: dict[_Key, int]) -> None:
    """Fill in the size of a function, and first those of the functions it calls."""
    waiting = [key]
    while waiting:
        current = waiting[-1]
        if current in sizes and sizes[current] >= 0:
            waiting.pop()
            continue
        first = current not in sizes
        sizes[current] = -1  # being looked at
        graph = functions[current].graph
        lacking = [c for c in _calls(graph, functions) if c not in sizes] if first else []
        if lacking:
            waiting.extend(lacking)
            continue
        sizes[current] = _count(graph, functions, sizes)
        waiting.pop()


def _calls(graph: ir.Graph, functions: Mapping[_Key, ir.Function]) -> list[_Key]:
    found = []
    for node in graph:
        if (key := node.op_identifier()) in functions:
            found.append(key)
        if node.attributes.data:
            for _, body in subgraphs(node):
                found.extend(_calls(body, functions))
    return found


def _count(
    graph: ir.Graph, functions: Mapping[_Key, ir.Function], sizes: Mapping[_Key, int]
) -> int:
    total = 0
    for node in graph:
        total += 1
        if functions and (key := node.op_identifier()) in functions:
            total += max(sizes.get(key, 0), 0)
        if node.attributes.data:
            for _, body in subgraphs(node):
                total += _count(body, functions, sizes)
    return total
