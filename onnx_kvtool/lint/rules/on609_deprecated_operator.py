"""ON609: A node names an operator that is gone at the opset."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["DeprecatedOperator"]


class DeprecatedOperator(MisuseRule):
    """A node names an operator that is gone at the opset.

    ## What it does

    Looks for nodes of the default domain whose operator was withdrawn at or before the opset of the
    model: Upsample since 10, Scatter since 11.

    ## Why is this bad?

    onnx's checker and onnxruntime refuse the model.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): the versions that are deprecated.
    """

    code = "ON609"
    name = "deprecated-operator"
    severity = "error"
    basis = "constant"
    kind = "deprecated-operator"

    bad = """
        <ir_version: 10, opset_import: ["": 11]>
        decoder (float[7, 2] past, int64[3, 2] index, float[3, 2] update) => (float[7, 2] present) {
            [cache] present = Scatter (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 11]>
        decoder (float[7, 2] past, int64[3, 2] index, float[3, 2] update) => (float[7, 2] present) {
            [cache] present = ScatterElements (past, index, update)
        }
    """
