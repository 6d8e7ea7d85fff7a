"""MD410: a suppression in the model suppresses nothing."""

from __future__ import annotations

from onnx_kvtool.lint.rule import RunRule

__all__ = ["UnusedSuppression"]


class UnusedSuppression(RunRule):
    """A suppression in the model suppresses nothing.

    ## What it does

    Looks for codes in the metadata `kvtool.ignore` of a node, a graph, a function or the model that
    name no rule, or rules that find nothing there. A code whose rules did not run (they were not
    selected, or wait for a `--target`) is left alone.

    ## Why is this bad?

    The model says that something is wrong with it and accepted, which is not so, or no longer. What
    remains would hide the finding if it came back.

    ## Fix safety

    Safe: only the metadata changes. A code goes away, and with the last one the entry.

    ## References

    - [Suppression in the model](../commands/check.md#in-the-model)
    - [ONNX IR](https://onnx.ai/onnx/repo-docs/IR.html), metadata: models and functions have
      `metadata_props`, and from IR version 10 on graphs and nodes have them as well.
    """

    code = "MD410"
    name = "unused-suppression"
    severity = "warning"
    basis = "constant"
    fix = "safe"

    bad = """
        <ir_version: 12, opset_import: ["": 24], metadata_props: ["kvtool.ignore": "KV003"]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "linear"> (past, update, start)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24], metadata_props: ["kvtool.ignore": "KV003"]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "ring"> (past, update, start)
        }
    """
