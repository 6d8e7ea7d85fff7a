"""KV302: onnxruntime has no TensorScatter kernel for the element type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["OrtDtype"]


class OrtDtype(TargetRule):
    """onnxruntime has no kernel of TensorScatter for the element type of the cache.

    ## What it does

    With `--target onnxruntime`, looks for a TensorScatter of a type that the release refuses: 8-bit
    floats, 4-bit integers and floats, complex numbers, strings. A type that is not known is no
    finding.

    ## Why is this bad?

    The model is valid and does not load: "Could not find an implementation for TensorScatter(24)".
    Strings load in releases 1.25 to 1.28 and are freed twice in 1.28.

    ## References

    - One-operator models in onnxruntime 1.25.1 to 1.31.1, CPU provider.
    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html) takes all tensor
      types.
    """

    code = "KV302"
    name = "ort-dtype"
    severity = "error"
    basis = "symbolic"
    runtime = "onnxruntime"
    example_target = "onnxruntime@1.31.1"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float8e4m3fn[2, 3, 7, 5] past, float8e4m3fn[2, 3, 1, 5] update, int64[2] start)
            => (float8e4m3fn[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float16[2, 3, 7, 5] past, float16[2, 3, 1, 5] update, int64[2] start)
            => (float16[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update, start)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Compare the type of each TensorScatter with those of the kernels."""
        from onnx_kvtool.lint.facts.release import (
            dtype_word,
            limits_named,
            lowering_command,
            runtime_words,
        )

        for limit in limits_named(target, "tensor-scatter-types"):
            for site in context.sites:
                if site.node.op_type != "TensorScatter" or site.node.domain:
                    continue
                dtype = dtype_word(site.node)
                if dtype is None or dtype in limit.types:
                    continue
                past = site.node.inputs[0] if site.node.inputs else None
                name = "" if past is None else f" `{past.name}`"
                yield self.found(
                    site.location(past),
                    f"{runtime_words(target)} has no TensorScatter for {dtype}, the type "
                    f"of `past_cache`{name}",
                    help="keep the cache in a type of the same width that has a kernel, such as "
                    "uint8 or float16, or lower the model for this release: "
                    + lowering_command(target),
                )
