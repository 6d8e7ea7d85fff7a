"""ON612: An output of a node that is not optional has an empty name."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["MissingOutput"]


class MissingOutput(MisuseRule):
    """An output of a node that is not optional has an empty name.

    ## What it does

    Looks for nodes of the default domain with an empty name in the place of an output that the
    operator always has.

    ## Why is this bad?

    Only optional outputs may be left out. onnx's checker refuses the model.

    ## References

    - [ONNX IR, nodes](https://onnx.ai/onnx/repo-docs/IR.html#nodes): an empty name stands for an
      optional output that is left out.
    """

    code = "ON612"
    name = "missing-output"
    severity = "error"
    basis = "constant"
    kind = "missing-output"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x) => (int64[2, 2] index) {
            k = Constant <value_ints: ints = [2]> ()
            [best] "", index = TopK (x, k)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x) => (int64[2, 2] index) {
            k = Constant <value_ints: ints = [2]> ()
            [best] largest, index = TopK (x, k)
        }
    """
