"""MD429: a node has an attribute twice."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["DuplicateAttribute"]


class DuplicateAttribute(DefectRule):
    """A node has two attributes of one name.

    ## What it does

    Looks for nodes with two attributes of one name.

    ## Why is this bad?

    Readers disagree on which of the two counts, and the other is lost when a tool writes the model
    again.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `NodeProto.attribute`:
      named attributes.
    - onnx.checker 1.23.2: "appeared multiple times".
    """

    code = "MD429"
    name = "duplicate-attribute"
    severity = "error"
    basis = "constant"
    defect = "duplicate-attribute"
    remedy = "keep the value that is meant"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Elu <alpha: float = 1.0, alpha: float = 2.0> (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Elu <alpha: float = 2.0> (x)
        }
    """
