"""ON607: A node reads or gives a type that its operator does not take."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["ElementType"]


class ElementType(MisuseRule):
    """A node reads or gives a type that its operator does not take.

    ## What it does

    Looks for values of nodes of the default domain whose type is not in the type constraint of the
    operator at the opset of the model: int32 indices of ScatterND, bfloat16 below opset 13. Types
    that neither the file nor shape inference states are not judged. The starts of TensorScatter are
    KV010, the data of the scatters KV206.

    ## Why is this bad?

    onnx's full check and onnxruntime refuse the model.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): the type constraints of each version.
    """

    code = "ON607"
    name = "element-type"
    severity = "error"
    basis = "constant"
    kind = "element-type"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, int32[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, int64[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """
