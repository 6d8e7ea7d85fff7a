"""MD428: the type of a value is declared twice, differently."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["DuplicateValueInfo"]


class DuplicateValueInfo(DefectRule):
    """The type of a value is declared twice in one graph, differently.

    ## What it does

    Looks for names that stand twice in `value_info` of a graph or function with different types,
    shapes or remarks.

    ## Why is this bad?

    Readers take one of the two; which one decides what shapes a runtime plans with.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `GraphProto.value_info`:
      it is optional for a value to appear there.
    """

    code = "MD428"
    name = "duplicate-value-info"
    severity = "warning"
    basis = "constant"
    defect = "duplicate-value-info"
    remedy = "keep the declaration that is right"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) <float[2, 3] z, float[2, M] z> {
            z = Neg (x)
            y = Exp (z)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) <float[2, 3] z> {
            z = Neg (x)
            y = Exp (z)
        }
    """
