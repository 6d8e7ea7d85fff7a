"""MD452: a tensor does not say what its elements are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UndefinedElementType"]


class UndefinedElementType(ModelRule):
    """A tensor has no element type.

    ## What it does

    Looks for tensors, in initializers and in attributes, whose `data_type` is absent or undefined.

    ## Why is this bad?

    The bytes of the tensor mean nothing without a type. onnx's checker and runtimes refuse it.

    ## References

    - onnx.checker 1.23.2: "setting data_type field ... to UNDEFINED is not allowed".
    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `TensorProto.data_type`:
      "This field MUST have a valid TensorProto.DataType value".
    """

    code = "MD452"
    name = "undefined-element-type"
    severity = "error"
    basis = "constant"

    bad = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "scale" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" dims: 0 }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "scale" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" data_type: 1 dims: 1 float_data: 1 }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at the type of each tensor."""
        for place, tensor in context.tensors:
            if tensor.dtype.name == "UNDEFINED":
                yield self.found(
                    place,
                    f"the tensor `{tensor.name or place.value}` has no element type",
                    help="export the model again",
                )
