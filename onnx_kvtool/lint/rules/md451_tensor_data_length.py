"""MD451: a tensor has more or less data than its shape says."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["TensorDataLength"]


class TensorDataLength(DefectRule):
    """A tensor has more or less data than its shape and type take.

    ## What it does

    Looks for tensors whose data in the model file does not have the length that shape and element
    type give; small elements are packed. Data in other files is [XD504](XD504.md).

    ## Why is this bad?

    The file is truncated or was edited by hand. onnxruntime fails to load it, others read past the
    end or fill up with zeros.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `TensorProto.raw_data`:
      the number of bytes follows from the number of elements.
    - onnx.checker 1.23.2: "raw_data size".
    """

    code = "MD451"
    name = "tensor-data-length"
    severity = "error"
    basis = "constant"
    defect = "tensor-data-length"
    remedy = "export the model again"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" data_type: 1 dims: 2 float_data: 1 }
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
