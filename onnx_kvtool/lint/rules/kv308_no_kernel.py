"""KV308: the runtime has no kernel for an operator of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["NoKernel"]


class NoKernel(TargetRule):
    """The release has no kernel for an operator, although it loads the opset.

    ## What it does

    With `--target`, looks for nodes that the release cannot run: operators that it has no kernel
    for at the opset of the model, or not for the element type of the node, values of a type that
    it does not take, and operators of onnxruntime (`com.microsoft`) that it does not import, or
    without an input or an attribute. An element type that is not known is no finding. Types of
    TensorScatter in onnxruntime are
    [KV302](KV302.md).

    ## Why is this bad?

    A runtime that accepts an opset need not have all its operators. The model is valid and fails to
    load or compile.

    ## References

    - `kvtool targets --format json` lists what each release lacks, and where that was measured or
      read.
    """

    code = "KV308"
    name = "no-kernel"
    severity = "error"
    basis = "symbolic"
    runtime = "any"
    example_target = "onnxruntime@1.24.4"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update)
            => (float[2, 3, 8, 5] present) {
            [cache] present = Concat <axis: int = 2> (past, update)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Ask the data on the release."""
        from onnx_kvtool.analysis.foreign_types import foreign_types
        from onnx_kvtool.lint.facts.release import (
            dtype_word,
            limited,
            lowering_command,
            runtime_words,
            strangers,
        )

        for site, limit in limited(context, target):
            dtype = dtype_word(site.node)
            if limit.when == "other-element-type":
                if dtype is None or limit.name == "tensor-scatter-types":
                    continue
            elif limit.when != "always":
                continue
            suffix = f" ({dtype})" if limit.when == "other-element-type" else ""
            yield self.found(
                site.location(),
                f"{runtime_words(target)} {limit.reason}{suffix}",
                help=f"lower the model for this release: {lowering_command(target)}",
            )
        for place, why in foreign_types(context.model, target.release):
            yield self.found(
                place,
                f"{runtime_words(target)} {why}",
                help="export the model with another type",
            )
        for place, why in strangers(context, target):
            yield self.found(
                place,
                f"{runtime_words(target)} {why}",
                help=f"{lowering_command(target)} writes it with operators of ONNX if it can",
            )
