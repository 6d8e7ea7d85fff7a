"""Topological order of nodes, and natural order of names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import onnx_ir as ir

from onnx_kvtool.core.walk import function_path, graph_path, subgraphs
from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.model import origin, settle

_DIGITS = re.compile(r"(\d+)")
_UNSORTED = "unsorted-nodes"


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return the sort key that puts `layer.2` before `layer.10`."""
    keys = []
    for place, part in enumerate(_DIGITS.split(name)):
        digits = part.lstrip("0")
        keys.append((len(digits), digits) if place % 2 else (0, part))
    return tuple(keys), name


def sort_nodes(model: ir.Model, became: str = "are sorted in the result") -> list[str]:
    """Sort the graphs whose nodes precede their inputs, in place; leave others unchanged.

    onnxruntime loads such models, and its converter to float16 writes them. ONNX wants an order
    that can run. Nodes that may stand in either order keep theirs. A graph with a cycle stays as it
    is, and so does its defect.

    Returns:
        What was done, for people: a sentence, or none.
    """
    defects = [defect for defect in origin(model).defects if defect.code == _UNSORTED]
    gone = []
    for path, root in _roots(model) if defects else ():
        concerned = [d for d in defects if f"{d.location.graph}/".startswith(f"{path}/")]
        if not concerned:
            continue
        try:
            root.sort()
        except ValueError:  # a cycle
            continue
        gone += concerned
    settle(model, _UNSORTED, (defect.location for defect in gone))
    if not gone:
        return []
    count = len({(d.location.graph, d.location.index) for d in gone})
    read = "it reads" if count == 1 else "they read"
    return [f"{counted(count, 'node')} stood before what {read}: the nodes {became}"]


def unsortable(model: ir.Model) -> frozenset[str]:
    """Return the paths of the main graph and of functions whose nodes depend on themselves."""
    return frozenset(path for path, root in _roots(model) if _has_cycle(root))


def _has_cycle(root: ir.Graph | ir.Function) -> bool:
    order: TopologicalSorter[ir.Node] = TopologicalSorter()
    for node in root.all_nodes():
        order.add(node, *(p for v in node.inputs if v is not None and (p := v.producer())))
        for _, body in subgraphs(node):
            order.add(node, *body)
    try:
        order.prepare()
    except CycleError:
        return True
    return False


def _roots(model: ir.Model) -> Iterator[tuple[str, ir.Graph | ir.Function]]:
    yield graph_path(model.graph.name), model.graph
    for key, function in model.functions.items():
        yield function_path(*key), function
