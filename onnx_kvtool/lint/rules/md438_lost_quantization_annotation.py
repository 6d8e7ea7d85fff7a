"""MD438: a quantization annotation is about nothing."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["LostQuantizationAnnotation"]


class LostQuantizationAnnotation(DefectRule):
    """A quantization annotation is about a value that is not there, or that has one already.

    ## What it does

    Looks for entries of `quantization_annotation` that name no value of the graph, and for second
    ones of one value.

    ## Why is this bad?

    The annotation has no effect where it is, and is lost when a tool writes the model again. Mostly
    a value was renamed and the annotation was not.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto),
      `GraphProto.quantization_annotation`.
    """

    code = "MD438"
    name = "lost-quantization-annotation"
    severity = "error"
    basis = "constant"
    defect = "lost-quantization-annotation"
    remedy = "correct the name in the annotation, or remove it"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          quantization_annotation { tensor_name: "z" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          quantization_annotation { tensor_name: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
