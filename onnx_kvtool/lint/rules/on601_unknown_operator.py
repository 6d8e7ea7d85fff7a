"""ON601: A node names an operator that the opset does not have."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["UnknownOperator"]


class UnknownOperator(MisuseRule):
    """A node names an operator that the opset does not have.

    ## What it does

    Looks for nodes of the default domain whose operator does not exist at the opset that the model,
    or the function in which the node stands, imports. TensorScatter has a rule of its own, KV012.
    Operators that onnxruntime has in the default domain and ONNX has not, such as
    SimplifiedLayerNormalization, are an information, and an error with a `--target` that is not
    onnxruntime. Other domains are not judged, nor are calls of
    model-local functions.

    ## Why is this bad?

    No runtime knows what to compute: the operator came with a later opset than the model imports,
    or its name is misspelt. onnx's checker refuses the model at the first such node.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): the opset that brought each of them.
    - [ONNX IR](https://onnx.ai/onnx/repo-docs/IR.html): "Each model MUST explicitly name the
      operator sets that it relies on for its functionality."
    """

    code = "ON601"
    name = "unknown-operator"
    severity = "error"
    basis = "constant"
    kind = "unknown-operator"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [act] y = Gelu (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 20]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [act] y = Gelu (x)
        }
    """
