"""MD436: a metadata key stands twice."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["DuplicateMetadata"]


class DuplicateMetadata(DefectRule):
    """A metadata key stands twice in one place.

    ## What it does

    Looks for keys that stand twice in the metadata of the model, a graph, a node, a value, a tensor
    or a function.

    ## Why is this bad?

    Metadata is read by key. Of two values the reader gets one, and the other is lost when a tool
    writes the model again.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `metadata_props`: "keys
      should be distinct".
    - onnx.checker 1.23.2: "Your model has duplicate keys in metadata_props."
    """

    code = "MD436"
    name = "duplicate-metadata"
    severity = "warning"
    basis = "constant"
    defect = "duplicate-metadata"
    remedy = "keep the value that is meant"

    bad = """
        <ir_version: 10, opset_import: ["": 24], metadata_props: ["author": "A", "author": "B"]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24], metadata_props: ["author": "A"]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
