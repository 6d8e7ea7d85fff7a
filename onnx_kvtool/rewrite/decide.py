"""Putting the branch of an If in its place where the condition is known."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.rewrite.names import Names

__all__ = ["decide_branches"]


def decide_branches(model: ir.Model, folder: Folder) -> None:
    """Replace each If of the main graph whose condition is a constant by the branch it takes.

    In place. The other branch may be impossible for what is known (a Split into more parts than
    there are), and nothing runs it. An If whose output is an output of the graph stays.

    Args:
        model: The model; its nested graphs are not looked at.
        folder: Knows which conditions are constant.
    """
    graph = model.graph
    names: Names | None = None
    for node in tuple(graph):
        if node.domain != "" or node.op_type != "If":
            continue
        condition = folder.integers(node.inputs[0])
        if condition is None or any(output.is_graph_output() for output in node.outputs):
            continue
        names = names or Names(model)
        taken = "then_branch" if condition.ravel()[0] else "else_branch"
        _inline(graph, node, node.attributes[taken].as_graph(), names)


def _inline(graph: ir.Graph, node: ir.Node, branch: ir.Graph, names: Names) -> None:
    results, nodes = list(branch.outputs), list(branch)
    initializers = list(branch.initializers.values())
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(nodes)
    for value in initializers:
        value.name = names.fresh(value.name or "constant")
        graph.register_initializer(value)
    # The two branches may use the same names.
    for inner in nodes:
        for output in inner.outputs:
            if output.name:
                output.name = names.fresh(output.name)
    graph.insert_before(node, nodes)
    for output, result in zip(node.outputs, results, strict=True):
        output.replace_all_uses_with(result)
    graph.remove(node, safe=True)
