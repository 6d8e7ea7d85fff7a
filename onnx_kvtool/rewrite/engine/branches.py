"""If nodes whose condition is known, in the place of which their branch stands."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.core.walk import remove_node, subgraphs
from onnx_kvtool.emit.emitter import Names, release
from onnx_kvtool.ops.schema import is_standard

__all__ = ["decide_branches"]


def decide_branches(model: ir.Model, folder: Folder, names: Names | None = None) -> list[ir.Node]:
    """Replace each If whose condition is a constant by the branch that it takes, in place.

    Main graph and bodies; not functions, and not bodies of operators that ONNX does not define. The
    other branch may be impossible for what is known (a Split into more parts than there are), and
    nothing runs it.

    Args:
        model: The model.
        folder: Knows which conditions are constant.
        names: Fresh names of the model; made when they are needed if there are none.

    Returns:
        Those that were replaced, in order.
    """
    return _Deciding(model, folder, names).graph(model.graph)


class _Deciding:
    def __init__(self, model: ir.Model, folder: Folder, names: Names | None) -> None:
        self._model = model
        self._folder = folder
        self._names = names

    def graph(self, graph: ir.Graph) -> list[ir.Node]:
        decided = []
        waiting = list(reversed(tuple(graph)))
        while waiting:
            node = waiting.pop()
            if not node.attributes.data or not is_standard(node):
                continue
            taken = self._taken(node)
            if taken is not None:
                decided.append(node)
                waiting += reversed(self._inline(graph, node, taken))
                continue
            for _, body in subgraphs(node):
                decided += self.graph(body)
        return decided

    def _taken(self, node: ir.Node) -> ir.Graph | None:
        """Return the branch of an If that runs; None where that is open, and for other nodes."""
        if node.op_type != "If":
            return None
        condition = self._folder.integers(node.inputs[0])
        if condition is None or condition.size != 1:
            return None
        name = "then_branch" if condition.ravel()[0] else "else_branch"
        return dict(subgraphs(node)).get(name)

    def _inline(self, graph: ir.Graph, node: ir.Node, branch: ir.Graph) -> list[ir.Node]:
        """Put the nodes of a branch in the place of its If, and return them."""
        names = self._names = self._names or Names(self._model)
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
            if output.is_graph_output():
                self._hand_out(graph, node, output, result)
            else:
                output.replace_all_uses_with(result)
        remove_node(node)
        release(node)  # the branch that is not taken reads nothing any more
        return nodes

    def _hand_out(
        self,
        graph: ir.Graph,
        node: ir.Node,
        output: ir.Value,
        result: ir.Value,
    ) -> None:
        """Let the result of a branch be an output of the graph, under the name that it has there.

        A value that has another name already is handed out through an Identity.
        """
        producer = result.producer()
        if producer is None or producer.graph is not graph or result.is_graph_output():
            identity = ir.Node("", "Identity", [result], version=node.version)
            graph.insert_before(node, [identity])
            result = identity.outputs[0]
        names = self._names = self._names or Names(self._model)
        name, type_, shape = output.name, output.type, output.shape
        output.name = names.fresh(f"{name}_undecided")
        graph.outputs[:] = [result if one is output else one for one in graph.outputs]
        output.replace_all_uses_with(result)
        result.name, result.type = name, type_ or result.type
        result.shape = shape if shape is not None else result.shape
