"""MD422: a node stands before the one whose result it reads."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UnsortedNodes"]


class UnsortedNodes(DefectRule):
    """A node reads a value that only a later node produces.

    ## What it does

    Looks for nodes that read the output of a node behind them, or of themselves, in their own graph
    or an enclosing one.

    ## Why is this bad?

    Nodes are stored in an order in which they can be run. Runtimes that rely on it refuse the
    model; a cycle, which has no such order at all, shows as this finding too.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto): `GraphProto.node`: "The
      nodes in the graph, sorted topologically.".
    - onnx.checker 1.23.2: "Nodes in a graph must be topologically sorted".
    """

    code = "MD422"
    name = "unsorted-nodes"
    severity = "error"
    basis = "constant"
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
