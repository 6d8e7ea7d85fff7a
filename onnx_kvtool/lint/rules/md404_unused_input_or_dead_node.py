"""MD404: an input of the model, or the result of a node, is read by nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

    Looks for inputs of the main graph that no node reads, in bodies neither: one finding. Looks for
    nodes none of whose outputs is read or returned: one finding a graph, at the first of them.
    Nodes of domains that kvtool does not know may have effects outside and are left alone, and so
    are initializers that are inputs as well ([MD403](MD403.md)).

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
        unused = [
            value
            for value in graph.inputs
            if value.name and not (value.uses() or value.is_graph_output())
            if not value.is_initializer() and not context.origin.training
        ]
        if unused:
            others = f" and {counted(len(unused) - 1, 'other input')}" if len(unused) > 1 else ""
            name = f"`{unused[0].name}`{others}"
            yield self.found(
                Location(graph_path(graph.name), value=unused[0].name),
                f"nothing reads the input {name}",
                help="remove it, or connect what it was meant for",
                fix=Fix("unsafe", f"remove the input {name}", _removing_inputs(graph, unused)),
            )
        dead: dict[str, list[DeadEnd]] = {}
        for end in dead_ends(context):
            dead.setdefault(end.site.location().graph, []).append(end)
        for ends in dead.values():
            first, before = ends[0], len(ends[0].feeding)
            nodes = sum(1 + len(end.feeding) for end in ends)
            more = f", nor the results of {counted(before, 'node')} before it" if before else ""
            if len(ends) > 1:
                more += f", nor those of {counted(nodes - 1 - before, 'other node')} of the graph"
            names = ", ".join(f"`{v.name}`" for v in first.site.node.outputs if v.name)
            yield self.found(
                first.site.location(),
                f"nothing reads {names or 'its outputs'}{more}",
                help="remove the node, or connect its result",
                fix=Fix("safe", f"remove {counted(nodes, 'dead node')}", _removing_nodes(ends)),
            )


def _removing_inputs(graph: ir.Graph, unused: Sequence[ir.Value]) -> Callable[[], None]:
    def apply() -> None:
        gone = {v for v in unused if not v.uses() and not v.is_graph_output()}
        graph.inputs[:] = [value for value in graph.inputs if value not in gone]

    return apply


def _removing_nodes(ends: Sequence[DeadEnd]) -> Callable[[], None]:
    def apply() -> None:
        # Each time readers before what they read, so that nothing is removed that is needed now.
        for node in (node for end in ends for node in (end.site.node, *end.feeding)):
            is_needed = any(v.uses() or v.is_graph_output() for v in node.outputs)
            if node.graph is not None and not is_needed:
                node.graph.remove(node, safe=True)

    return apply
