"""MD430: a node has no operator."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["MissingOpType"]


class MissingOpType(DefectRule):
    """A node does not say which operator it is.

    ## What it does

    Looks for nodes whose `op_type` is absent or empty.

    ## Why is this bad?

    Nobody can run such a node.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `NodeProto.op_type`:
      "The symbolic identifier of the Operator to execute."
    - onnx.checker 1.23.2: "Field 'op_type' of 'node' is required to be non-empty."
    """

    code = "MD430"
    name = "missing-op-type"
    severity = "error"
    basis = "constant"
    defect = "missing-op-type"
    remedy = "export the model again"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" input: "x" output: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [negate] y = Neg (x)
        }
    """
