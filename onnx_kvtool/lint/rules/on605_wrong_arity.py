"""ON605: A node has more or fewer inputs or outputs than its operator takes."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["WrongArity"]


class WrongArity(MisuseRule):
    """A node has more or fewer inputs or outputs than its operator takes.

    ## What it does

    Counts the inputs and outputs of nodes of the default domain and compares them with the operator
    at the opset of the model. Inputs that are required and absent are ON606.

    ## Why is this bad?

    A further input has no meaning, or one of a later opset: TensorScatter has three, Clip took its
    bounds as attributes before opset 11. onnx's checker and onnxruntime refuse the model.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): inputs and outputs of each version.
    """

    code = "ON605"
    name = "wrong-arity"
    severity = "error"
    basis = "constant"
    kind = "arity"

    bad = """
        <ir_version: 10, opset_import: ["": 10]>
        main (float[2, 5] x, float low) => (float[2, 5] y) {
            [bounds] y = Clip (x, low)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 11]>
        main (float[2, 5] x, float low) => (float[2, 5] y) {
            [bounds] y = Clip (x, low)
        }
    """
