"""ON602: A node has an attribute that its operator does not have."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["UnknownAttribute"]


class UnknownAttribute(MisuseRule):
    """A node has an attribute that its operator does not have.

    ## What it does

    Looks for attributes that the operator does not have at the opset of the model. Names that begin
    with two underscores are private notes and are left alone, as onnx's checker does. Operators of
    onnxruntime are compared with the newest release that kvtool knows: a warning, and an error if
    `--target` names onnxruntime.

    ## Why is this bad?

    The attribute came with a later opset, or its name is misspelt, and the default is what counts.
    onnx's checker refuses the model; some runtimes ignore what they do not know and compute
    something else.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): the attributes of each version.
    """

    code = "ON602"
    name = "unknown-attribute"
    severity = "error"
    basis = "constant"
    kind = "unknown-attribute"

    bad = """
        <ir_version: 10, opset_import: ["": 15]>
        decoder (float[7, 2, 5] past, int64[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND <reduction: string = "none"> (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 16]>
        decoder (float[7, 2, 5] past, int64[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND <reduction: string = "none"> (past, index, update)
        }
    """
