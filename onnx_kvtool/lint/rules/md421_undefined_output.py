"""MD421: an output of a graph does not exist."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UndefinedOutput"]


class UndefinedOutput(DefectRule):
    """A graph has an output that nothing in it produces.

    ## What it does

    Looks for outputs of the main graph and of bodies that no node, input or initializer of that
    graph carries. A body that returns a value of an enclosing graph has to pass it through an
    Identity.

    ## Why is this bad?

    The model cannot be run, or, for the body of an If, is run by some runtimes and refused by
    others.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md): graph outputs name values of
      the graph.
    - onnx.checker 1.23.2: "is not an output of any node in graph".
    """

    code = "MD421"
    name = "undefined-output"
    severity = "error"
    basis = "constant"
    defect = "undefined-output"
    remedy = "name a value that the graph produces"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] z) {
            [negate] y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
