"""MD426: an initializer has no name."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UnnamedInitializer"]


class UnnamedInitializer(DefectRule):
    """An initializer has no name.

    ## What it does

    Looks for initializers of any graph whose name is empty.

    ## Why is this bad?

    Nodes refer to initializers by name: nothing can read this one, and tools drop it in silence.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto),
      `GraphProto.initializer`: each "MUST have a name".
    - onnx.checker 1.23.2: "Tensor initializers must have a non-empty name".
    """

    code = "MD426"
    name = "unnamed-initializer"
    severity = "error"
    basis = "constant"
    defect = "unnamed-initializer"
    remedy = "name the initializer, or remove it"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) <float "" = {1}> {
            [negate] y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
