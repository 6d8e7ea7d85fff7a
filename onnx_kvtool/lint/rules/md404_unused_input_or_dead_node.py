"""MD404: an input of the model, or the result of a node, is read by nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.facts.liveness import DeadEnd
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UnusedInputOrDeadNode"]


class UnusedInputOrDeadNode(ModelRule):
    """An input of the model is read by no node, or nobody reads what a node computes.

    ## What it does

    Looks for inputs of the main graph that no node reads, in bodies neither, and for nodes none of
    whose outputs is read or returned. A chain of such nodes is one finding, at its last node. Nodes
    of domains that kvtool does not know may have effects outside and are left alone, and so are
    initializers that are inputs as well ([MD403](MD403.md)).

    ## Why is this bad?

    An input that is not read has to be fed all the same, and suggests an effect that it does not
    have: a `position_ids` that is ignored. A node whose result is thrown away costs time in
    runtimes that do not remove it, and mostly means that a connection was lost.

    ## Fix safety

    Removing dead nodes is safe: no result changes. Removing an input is unsafe: callers that feed
    it fail.

    ## References

    - onnxruntime 1.31.1 removes dead nodes when it optimises a graph, and demands a value for every
      input that has no initializer.
    """

    code = "MD404"
    name = "unused-input-or-dead-node"
    severity = "warning"
    basis = "constant"
    fix = "unsafe"

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x, int64[2, 1] position_ids) => (float[2, 3] y) {
            y = Neg (x)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Ask inputs and results for their readers."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.quantity import counted
        from onnx_kvtool.core.walk import graph_path
        from onnx_kvtool.lint.facts.liveness import dead_ends
        from onnx_kvtool.lint.finding import Fix

        graph = context.model.graph
        for value in graph.inputs:
            is_used = value.uses() or value.is_graph_output() or value.is_initializer()
            if value.name and not is_used and not context.origin.training:
                title = f"remove the input `{value.name}`"
                yield self.found(
                    Location(graph_path(graph.name), value=value.name),
                    f"nothing reads the input `{value.name}`",
                    help="remove it, or connect what it was meant for",
                    fix=Fix("unsafe", title, _removing_input(graph, value)),
                )
        for end in dead_ends(context):
            feeding = len(end.feeding)
            title = f"remove {counted(feeding + 1, 'dead node')}"
            more = f", nor the results of {counted(feeding, 'node')} before it" if feeding else ""
            names = ", ".join(f"`{v.name}`" for v in end.site.node.outputs if v.name)
            yield self.found(
                end.site.location(),
                f"nothing reads {names or 'its outputs'}{more}",
                help="remove the node, or connect its result",
                fix=Fix("safe", title, _removing_nodes(end)),
            )


def _removing_input(graph: ir.Graph, value: ir.Value) -> Callable[[], None]:
    def apply() -> None:
        if value.is_graph_input() and not value.uses() and not value.is_graph_output():
            graph.inputs.remove(value)

    return apply


def _removing_nodes(end: DeadEnd) -> Callable[[], None]:
    def apply() -> None:
        graph = end.site.node.graph
        if graph is None:
            return
        # Each time readers before what they read, so that nothing is removed that is needed now.
        for node in (end.site.node, *end.feeding):
            is_needed = any(v.uses() or v.is_graph_output() for v in node.outputs)
            if node.graph is graph and not is_needed:
                graph.remove(node, safe=True)

    return apply
