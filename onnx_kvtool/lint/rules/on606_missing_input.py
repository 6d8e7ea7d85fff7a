"""ON606: A required input of a node is absent or has an empty name."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["MissingInput"]


class MissingInput(MisuseRule):
    """A required input of a node is absent or has an empty name.

    ## What it does

    Looks for nodes of the default domain that leave out an input which is not optional: they have
    too few inputs, or an empty name in its place. Of a list of inputs, as Min and Concat take it,
    none may be left out.

    ## Why is this bad?

    The operator cannot be computed. Exporters write such nodes where a value that they wanted to
    connect does not exist, such as the attention mask of a model that has none. onnx's checker
    refuses the model, often with a complaint about something else, and onnxruntime does not load
    it.

    ## References

    - [ONNX IR, nodes](https://onnx.ai/onnx/repo-docs/IR.html#nodes): an empty name stands for an
      optional input that is left out.
    """

    code = "ON606"
    name = "missing-input"
    severity = "error"
    basis = "constant"
    kind = "missing-input"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, int64[2] start) => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, "", start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update, start)
        }
    """
