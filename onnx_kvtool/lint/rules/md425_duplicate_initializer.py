"""MD425: one value has two initializers."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["DuplicateInitializer"]


class DuplicateInitializer(DefectRule):
    """A value is initialized twice in one graph.

    ## What it does

    Looks for names that stand twice among the initializers of a graph, sparse ones included.

    ## Why is this bad?

    Readers disagree on which of the two values counts: onnx_ir takes the last. The model means
    different things to different tools.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto),
      `GraphProto.initializer`: "The name MUST be unique across both initializer and
      sparse_initializer".
    - onnx.checker 1.23.2: "initializer name is not unique".
    """

    code = "MD425"
    name = "duplicate-initializer"
    severity = "error"
    basis = "constant"
    defect = "duplicate-initializer"
    remedy = "keep the value that is meant, and rename or remove the other"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) <float w = {1}, float w = {2}> {
            [negate] y = Mul (x, w)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) <float w = {1}> {
            [negate] y = Mul (x, w)
        }
    """
