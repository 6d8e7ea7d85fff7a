"""KV012: a TensorScatter stands at an opset that does not have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["OpsetTooOld"]


class OpsetTooOld(NodeRule):
    """A TensorScatter stands at an opset that does not have it.

    ## What it does

    Looks for a TensorScatter in a model, or in a model-local function, that imports the default
    domain at a version below 24.

    ## Why is this bad?

    The operator came with opset 24. onnx's checker and onnxruntime refuse the model; onnx's shape
    inference and onnx.reference 1.23 take it in silence.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "since version
      24".
    """

    code = "KV012"
    name = "opset-too-old"
    severity = "error"
    basis = "constant"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 23]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare the opset with the one that brought the operator."""
        from onnx_kvtool.lint.facts.operands import FIRST_OPSET

        if site.opset is not None and site.opset < FIRST_OPSET:
            owner = "model" if site.root is context.model.graph else "function"
            yield self.found(
                site.location(),
                f"`TensorScatter` came with opset {FIRST_OPSET}, the {owner} imports opset "
                f"{site.opset}",
                help=f"raise the opset import to {FIRST_OPSET}; for a runtime that does not load "
                "it, `kvtool lower --opset` replaces the operator afterwards",
            )
