"""MD427: a value in a body hides one of the same name around it."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["ShadowedValue"]


class ShadowedValue(DefectRule):
    """A value in a body has the name of a value in an enclosing graph.

    ## What it does

    Looks for inputs, initializers and node outputs of bodies of If, Loop, Scan and the like whose
    name an enclosing graph has as well.

    ## Why is this bad?

    A body can read the values around it by name. With two of one name it is open to tools which one
    is meant, and an edit that moves a node changes the result.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md): names of values are unique
      across a graph and the graphs nested in it.
    - onnx.checker 1.23.2: "Graph must be in single static assignment (SSA) form".
    """

    code = "MD427"
    name = "shadowed-value"
    severity = "warning"
    basis = "constant"
    defect = "shadowed-value"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (bool c, float[2, 3] x) => (float[2, 3] y) {
            z = Neg (x)
            [choice] y = If (c) <
                then_branch = yes () => (float[2, 3] z) { [inner] z = Exp (x) },
                else_branch = no () => (float[2, 3] w) { w = Neg (z) }
            >
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (bool c, float[2, 3] x) => (float[2, 3] y) {
            z = Neg (x)
            [choice] y = If (c) <
                then_branch = yes () => (float[2, 3] v) { [inner] v = Exp (x) },
                else_branch = no () => (float[2, 3] w) { w = Neg (z) }
            >
        }
    """
