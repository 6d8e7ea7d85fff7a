"""MD457: an opaque type has no name."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UnnamedOpaqueType"]


class UnnamedOpaqueType(DefectRule):
    """An opaque type has no name.

    ## What it does

    Looks for values of an opaque type, also inside sequences, optionals and maps, whose type has no
    name.

    ## Why is this bad?

    An opaque type is known by its domain and its name alone. onnx's checker refuses the model.

    ## References

    - onnx.checker 1.23.2: "Field 'name' of 'type' is required to be non-empty."
    """

    code = "MD457"
    name = "unnamed-opaque-type"
    severity = "error"
    basis = "constant"
    defect = "unnamed-opaque-type"
    remedy = "name the type as the domain that defines it does"

    bad = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "look" op_type: "Look" domain: "my" input: "x" output: "y" }
          input { name: "x" type { opaque_type { domain: "my" } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "look" op_type: "Look" domain: "my" input: "x" output: "y" }
          input { name: "x" type { opaque_type { domain: "my" name: "Image" } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
