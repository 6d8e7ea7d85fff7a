"""ON610: A node lacks an attribute that its operator requires."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["MissingAttribute"]


class MissingAttribute(MisuseRule):
    """A node lacks an attribute that its operator requires.

    ## What it does

    Looks for nodes of the default domain without an attribute that has no default and is required
    at the opset of the model, such as `axis` of Concat.

    ## Why is this bad?

    The operator cannot be computed. onnx's checker and onnxruntime refuse the model.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): attributes that are "required".
    """

    code = "ON610"
    name = "missing-attribute"
    severity = "error"
    basis = "constant"
    kind = "missing-attribute"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update) => (float[2, 3, 8, 5] present) {
            [cache] present = Concat (past, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update) => (float[2, 3, 8, 5] present) {
            [cache] present = Concat <axis: int = 2> (past, update)
        }
    """
