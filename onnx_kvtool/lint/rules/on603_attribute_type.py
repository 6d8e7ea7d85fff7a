"""ON603: An attribute has another type than its operator declares."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["AttributeType"]


class AttributeType(MisuseRule):
    """An attribute has another type than its operator declares.

    ## What it does

    Looks for attributes of nodes of the default domain whose type (INT, FLOAT, INTS, ...) is not
    the one that the operator declares.

    ## Why is this bad?

    Readers look in the field of the declared type and find nothing there, or refuse the model.
    onnx's checker refuses it.

    ## References

    - [ONNX IR, attributes](https://onnx.ai/onnx/repo-docs/IR.html#attributes): "The type field MUST
      be present".
    """

    code = "ON603"
    name = "attribute-type"
    severity = "error"
    basis = "constant"
    kind = "attribute-type"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [probabilities] y = Softmax <axis: float = 1.0> (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [probabilities] y = Softmax <axis: int = 1> (x)
        }
    """
