"""MD442: a function has two parameters of one name."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["DuplicateParameter"]


class DuplicateParameter(DefectRule):
    """A function has two inputs or two attributes of one name.

    ## What it does

    Looks for names that stand twice among the inputs, or among the attributes, of a model-local
    function.

    ## Why is this bad?

    The body refers to its parameters by name; which of the two it means depends on the reader.

    ## References

    - onnx.checker 1.23.2: "should not have duplicate attributes specified", "has been used multiple
      times".
    """

    code = "MD442"
    name = "duplicate-parameter"
    severity = "error"
    basis = "constant"
    defect = "duplicate-parameter"
    remedy = "rename one of them"

    bad = """
        <ir_version: 10, opset_import: ["": 24, "local": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = local.f (x, x)
        }
        <domain: "local", opset_import: ["": 24]>
        f (a, a) => (b) { b = Neg (a) }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24, "local": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = local.f (x)
        }
        <domain: "local", opset_import: ["": 24]>
        f (a) => (b) { b = Neg (a) }
    """
