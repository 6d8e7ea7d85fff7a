"""MD435: the last output of a node is written out and has no name."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["TrailingEmptyOutput"]


class TrailingEmptyOutput(DefectRule):
    """The last output of a node is present and has no name.

    ## What it does

    Looks for nodes whose last output has an empty name.

    ## Why is this bad?

    An empty name stands for an output that is left out. At the end of the list it says nothing, and
    tools that count outputs take the node for one with an output more.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md): trailing optional outputs may
      be left out.
    """

    code = "MD435"
    name = "trailing-empty-output"
    severity = "info"
    basis = "constant"
    defect = "trailing-empty-output"
    remedy = "leave the output out"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [drop] y, "" = Dropout (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [drop] y = Dropout (x)
        }
    """
