"""MD437: the file holds something that the installed onnx does not know."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UnknownField"]


class UnknownField(DefectRule):
    """The file holds a field that the installed onnx does not know.

    ## What it does

    Looks for protobuf fields, in any part of the model, that the installed version of onnx has no
    definition of.

    ## Why is this bad?

    A newer writer has put something there. It may change the meaning of the model, and it is lost
    as soon as a tool writes the model again.

    ## References

    - [Unknown fields of protobuf](https://protobuf.dev/programming-guides/proto3/#unknowns).
    """

    code = "MD437"
    name = "unknown-field"
    severity = "error"
    basis = "constant"
    defect = "unknown-field"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
        # appended: 807d01
    """
    good = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
