"""MD444: a model-local function has no name."""

from __future__ import annotations

from onnx_kvtool.lint.defect_rule import DefectRule

__all__ = ["UnnamedFunction"]


class UnnamedFunction(DefectRule):
    """A model-local function has no name.

    ## What it does

    Looks for functions of the model whose name is empty.

    ## Why is this bad?

    No node can call it, and onnx's checker refuses the model.

    ## References

    - onnx.checker 1.23.2: "Field 'name' of 'function' is required to be non-empty."
    """

    code = "MD444"
    name = "unnamed-function"
    severity = "error"
    basis = "constant"
    defect = "unnamed-function"
    remedy = "name it as its callers do, or remove it"

    bad = """
        ir_version: 12
        opset_import { version: 24 }
        opset_import { domain: "local" version: 1 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
        functions {
          domain: "local"
          input: "a"
          output: "b"
          node { op_type: "Neg" input: "a" output: "b" }
          opset_import { version: 24 }
        }
    """
    good = """
        ir_version: 12
        opset_import { version: 24 }
        opset_import { domain: "local" version: 1 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
        functions {
          name: "negated" domain: "local"
          input: "a"
          output: "b"
          node { op_type: "Neg" input: "a" output: "b" }
          opset_import { version: 24 }
        }
    """
