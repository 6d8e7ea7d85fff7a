"""MD453: the data of a tensor stands where nobody looks for it."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["TensorDataField"]


class TensorDataField(DefectRule):
    """The data of a tensor stands in a field that is not for its type, or in several.

    ## What it does

    Looks for tensors with data in a field of another element type, in two fields, or in the model
    file although they are external.

    ## Why is this bad?

    Readers look into one field, and not all into the same. The model loads with zeros or other
    values, or fails to load.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `TensorProto`:
      "Depending on the data_type field, exactly one of the fields below" is used.
    - onnx.checker 1.23.2: "should contain one and only one value field", "should be stored in
      field".
    """

    code = "MD453"
    name = "tensor-data-field"
    severity = "error"
    basis = "constant"
    defect = "tensor-data-field"
    remedy = "export the model again"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" data_type: 1 dims: 2 int64_data: 1 int64_data: 2 }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" data_type: 1 dims: 2 float_data: 1 float_data: 2 }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
