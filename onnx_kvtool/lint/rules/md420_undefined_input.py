"""MD420: a node reads a value that does not exist."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UndefinedInput"]


class UndefinedInput(DefectRule):
    """A node reads a value that nothing in the model produces.

    ## What it does

    Looks for node inputs that are the name of no graph input, no initializer and no output of
    another node, in the graph of the node or around it. An empty name stands for an absent input
    and is none.

    ## Why is this bad?

    The model cannot be run. Mostly an initializer was lost or a value was renamed in one place
    only.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md), names within a graph.
    - onnx.checker 1.23.2: "Nodes in a graph must be topologically sorted".
    """

    code = "MD420"
    name = "undefined-input"
    severity = "error"
    basis = "constant"
    defect = "undefined-input"
    remedy = "restore the value, or connect the node to another one"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Add (x, w)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Add (x, x)
        }
    """
