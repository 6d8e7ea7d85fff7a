"""MD423: two inputs of a graph have one name."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["DuplicateInput"]


class DuplicateInput(DefectRule):
    """A graph has two inputs of one name.

    ## What it does

    Looks for names that stand twice among the inputs of the main graph or of a body.

    ## Why is this bad?

    Inputs are fed by name. Which of the two a node reads, and whether the other is ever fed, each
    reader decides for itself.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md): graphs are in static single
      assignment form.
    - onnx.checker 1.23.2: "has been used as graph input names multiple times".
    """

    code = "MD423"
    name = "duplicate-input"
    severity = "error"
    basis = "constant"
    defect = "duplicate-input"
    remedy = "rename one of them, or remove it"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x, float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
