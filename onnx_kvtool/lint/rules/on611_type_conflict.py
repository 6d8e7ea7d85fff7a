"""ON611: Values that an operator wants to be of one type differ in type."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["TypeConflict"]


class TypeConflict(MisuseRule):
    """Values that an operator wants to be of one type differ in type.

    ## What it does

    Compares the types of the inputs and outputs of a node that share a type parameter, such as T.
    The values of TensorScatter are KV006. Values of unknown type are not judged.

    ## Why is this bad?

    Nothing is converted on its own in ONNX. onnx's full check refuses
    the model, and onnxruntime does not load it. The usual cause is a Cast that is missing where a
    model mixes precisions.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): the type parameters of each operator.
    """

    code = "ON611"
    name = "type-conflict"
    severity = "error"
    basis = "constant"
    kind = "type-conflict"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x, float16[2, 5] bias) => (float[2, 5] y) {
            [sum] y = Add (x, bias)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x, float16[2, 5] bias) => (float[2, 5] y) {
            wide = Cast <to: int = 1> (bias)
            [sum] y = Add (x, wide)
        }
    """
