"""MD450: the shape of a tensor is impossible."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["BadDims"]


class BadDims(DefectRule):
    """The shape of a tensor is impossible.

    ## What it does

    Looks for tensors, in initializers, attributes and sparse tensors, with a negative dimension or
    more elements than fit into 63 bits.

    ## Why is this bad?

    No data can have such a shape. Readers that multiply the dimensions overflow and allocate too
    little.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `TensorProto.dims`: "The
      shape of the tensor."
    - onnx.checker 1.23.2: "has a shape too large to validate against its data type".
    """

    code = "MD450"
    name = "bad-dims"
    severity = "error"
    basis = "constant"
    defect = "bad-dims"
    remedy = "export the model again"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" data_type: 1 dims: -2 float_data: 1 }
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
