"""MD411: the model does not say which version of the format it is in."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["MissingIrVersion"]


class MissingIrVersion(DefectRule):
    """The model states no IR version.

    ## What it does

    Looks for a model whose `ir_version` is absent or not positive.

    ## Why is this bad?

    The IR version says what a reader may expect in the file: whether initializers are inputs as
    well, whether functions and metadata exist. Readers refuse a model without one or guess.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto): `ModelProto.ir_version`:
      "This field MUST be present."
    - onnx.checker 1.23.2: "The model does not have an ir_version set properly."
    """

    code = "MD411"
    name = "missing-ir-version"
    severity = "error"
    basis = "constant"
    defect = "missing-ir-version"
    remedy = "export the model again, or set `ir_version` to that of its opset"

    bad = """
        <opset_import: ["": 24]>
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
