"""MD440: a function of the model is defined twice."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["DuplicateFunction"]


class DuplicateFunction(DefectRule):
    """A function of the model is defined twice.

    ## What it does

    Looks for model-local functions of one domain, name and overload.

    ## Why is this bad?

    Which body a call runs depends on the reader.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `ModelProto.functions`:
      "The (domain, name, overload) tuple must be unique across the function protos in this list."
    - onnx.checker 1.23.2: "Model contains multiple local functions with the same implementation
      id".
    """

    code = "MD440"
    name = "duplicate-function"
    severity = "error"
    basis = "constant"
    defect = "duplicate-function"
    remedy = "keep one of them, or tell them apart by `overload`"

    bad = """
        <ir_version: 10, opset_import: ["": 24, "local": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = local.f (x)
        }
        <domain: "local", opset_import: ["": 24]>
        f (a) => (b) { b = Neg (a) }
        <domain: "local", opset_import: ["": 24]>
        f (a) => (b) { b = Exp (a) }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24, "local": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = local.f (x)
        }
        <domain: "local", opset_import: ["": 24]>
        f (a) => (b) { b = Neg (a) }
    """
