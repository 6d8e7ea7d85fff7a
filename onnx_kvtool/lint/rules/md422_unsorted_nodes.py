"""MD422: a node stands before the one whose result it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from onnx_kvtool.lint.defect_rule import DefectRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UnsortedNodes"]


class UnsortedNodes(DefectRule):
    """A node reads a value that only a later node produces.

    ## What it does

    Looks for nodes that read the output of a node behind them, or of themselves, in their own graph
    or an enclosing one.

    ## Why is this bad?

    Nodes are stored in an order in which they can be run. Runtimes that rely on it refuse the
    model; a cycle, which has no such order at all, shows as this finding too.

    onnxruntime sorts such a model, which its converter to float16 writes, and so do `kvtool lower`
    and `kvtool raise`.

    ## Fix safety

    The fix is safe: it sorts the nodes of the graph, and those that may stand in either order keep
    theirs. A cycle has no fix.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto): `GraphProto.node`: "The
      nodes in the graph, sorted topologically.".
    - onnx.checker 1.23.2: "Nodes in a graph must be topologically sorted".
    """

    code = "MD422"
    name = "unsorted-nodes"
    severity = "error"
    basis = "constant"
    fix = "safe"
    defect = "unsorted-nodes"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [second] y = Neg (z)
            [first] z = Exp (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [first] z = Exp (x)
            [second] y = Neg (z)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Hand on the defect, with the fix where there is no cycle."""
        from onnx_kvtool.core.sorting import sort_nodes, unsortable
        from onnx_kvtool.lint.finding import Fix

        def sort() -> None:
            sort_nodes(context.model)

        fix = Fix("safe", "sort the nodes", sort)
        found = list(super().check(context))
        circles = unsortable(context.model) if found else frozenset[str]()
        for finding in found:
            place = f"{finding.location.graph}/"
            in_circle = any(place.startswith(f"{path}/") for path in circles)
            yield finding if in_circle else replace(finding, fix=fix)
