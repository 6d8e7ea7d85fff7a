"""MD409: the model does not say which version of ONNX's operators it uses."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["MissingOpsetImport"]


class MissingOpsetImport(DefectRule):
    """The model uses ONNX's own operators and imports no version of them.

    ## What it does

    Looks for a model with nodes of the default domain and no entry for it in `opset_import`. Other
    domains are [ON608](ON608.md).

    ## Why is this bad?

    Without a version it is open what the nodes mean: Softmax, Clip and dozens of others changed.
    onnx's checker and onnxruntime refuse the model, and nothing can be said of any of its nodes.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto),
      `ModelProto.opset_import`: "All ModelProtos MUST have at least one entry".
    - onnx.checker 1.23.2: "No opset import for domain".
    """

    code = "MD409"
    name = "missing-opset-import"
    severity = "error"
    basis = "constant"
    defect = "missing-opset-import"
    remedy = "import the version for which the nodes were written"

    bad = """
        <ir_version: 10, opset_import: ["vendor": 1]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
