"""MD441: a function of the model calls itself."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["RecursiveFunction"]


class RecursiveFunction(DefectRule):
    """A function of the model calls itself, directly or through others.

    ## What it does

    Looks for cycles among the calls of model-local functions; calls in bodies of If, Loop and Scan
    count.

    ## Why is this bad?

    A call stands for the body of its function, and such a body has no end. Runtimes inline
    functions when they load a model.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md): functions must not be
      recursive.
    - onnx.checker 1.23.2: "Model-local functions must not be recursive."
    """

    code = "MD441"
    name = "recursive-function"
    severity = "error"
    basis = "constant"
    defect = "recursive-function"
    remedy = "write the repetition as a Loop"

    bad = """
        <ir_version: 10, opset_import: ["": 24, "local": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = local.f (x)
        }
        <domain: "local", opset_import: ["": 24, "local": 1]>
        f (a) => (b) { b = local.g (a) }
        <domain: "local", opset_import: ["": 24, "local": 1]>
        g (a) => (b) { b = local.f (a) }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24, "local": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = local.f (x)
        }
        <domain: "local", opset_import: ["": 24, "local": 1]>
        f (a) => (b) { b = local.g (a) }
        <domain: "local", opset_import: ["": 24, "local": 1]>
        g (a) => (b) { b = Neg (a) }
    """
