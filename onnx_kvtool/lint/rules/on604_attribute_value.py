"""ON604: An attribute has a value that its operator does not know."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["AttributeValue"]


class AttributeValue(MisuseRule):
    """An attribute has a value that its operator does not know.

    ## What it does

    Looks for strings that an attribute does not take, at all or not yet at the opset of the model,
    such as `reduction="max"` of ScatterND below opset 18, and for numbers of element types (`to` of
    Cast, `dtype` of others) that do not exist or that the operator does not give. A `perm` has to
    be a permutation, an `axis` one of the first input, where its rank is known, and the `equation`
    of Einsum one that its operands can have. The `mode` of TensorScatter is KV003.

    ## Why is this bad?

    onnx's checker and shape inference look at hardly any of these values; a runtime fails when it
    loads or runs the model, or falls into its last branch and computes something else.

    ## References

    - [ONNX operators](https://onnx.ai/onnx/operators/): the values are listed with each attribute.
    """

    code = "ON604"
    name = "attribute-value"
    severity = "error"
    basis = "constant"
    kind = "attribute-value"

    bad = """
        <ir_version: 10, opset_import: ["": 16]>
        decoder (float[7, 2, 5] past, int64[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND <reduction: string = "max"> (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, int64[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND <reduction: string = "max"> (past, index, update)
        }
    """
