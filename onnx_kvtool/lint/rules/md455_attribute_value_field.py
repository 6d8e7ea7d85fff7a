"""MD455: the value of an attribute stands where nobody looks for it."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["AttributeValueField"]


class AttributeValueField(DefectRule):
    """The value of an attribute stands in a field that is not for its type, or in several.

    ## What it does

    Looks for attributes with a value in a field of another type, in two fields, or with a value
    although they refer to a parameter of a function.

    ## Why is this bad?

    Readers that go by the type find nothing and take 0 or an empty list; others take what they find
    first.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `AttributeProto`: it has
      "*only one*" of the fields with a value.
    - onnx.checker 1.23.2: "type field and data field mismatch in attribute", "should not contain
      more than one value field".
    """

    code = "MD455"
    name = "attribute-value-field"
    severity = "error"
    basis = "constant"
    defect = "attribute-value-field"
    remedy = "export the model again"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Elu" input: "x" output: "y"
            attribute { name: "alpha" type: FLOAT i: 2 }
          }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Elu" input: "x" output: "y"
            attribute { name: "alpha" type: FLOAT f: 2 }
          }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
