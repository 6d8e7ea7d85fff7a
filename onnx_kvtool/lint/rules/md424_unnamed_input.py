"""MD424: an input of a graph has no name."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UnnamedInput"]


class UnnamedInput(DefectRule):
    """A graph has an input without a name.

    ## What it does

    Looks for inputs of the main graph or of a body whose name is empty.

    ## Why is this bad?

    An empty name stands for an absent value. No node can read such an input and no caller can feed
    it.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `ValueInfoProto.name`:
      "This field MUST be present in this version of the IR."
    - onnx.checker 1.23.2: "Field 'name' of 'value_info' is required to be non-empty."
    """

    code = "MD424"
    name = "unnamed-input"
    severity = "error"
    basis = "constant"
    defect = "unnamed-input"
    remedy = "name the input, or remove it"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x, float[2, 3] "") => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
