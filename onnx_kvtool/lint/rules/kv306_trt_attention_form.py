"""KV306: TensorRT has no Attention of this form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.ops.attention import Attention
    from onnx_kvtool.targets.target import Target

__all__ = ["TrtAttentionForm"]

_DIMENSIONS = 4


class TrtAttentionForm(TargetRule):
    """An Attention has inputs, outputs or attributes that TensorRT does not take.

    ## What it does

    With `--target tensorrt`, in releases that have the operator, looks for an Attention with a
    past, `nonpad_kv_seqlen`, `softcap` or further outputs, or with 3-dimensional operands or a mask
    that is not 4-dimensional. A rank that is not known is no finding.

    ## Why is this bad?

    The parser takes the plain form alone and refuses the rest. A decoder with a cache of fixed size
    needs the number of valid rows; for TensorRT it has to stand in a 4-dimensional mask.

    ## References

    - [Operators of the parser](https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md):
      Attention, as of 10.15 and 11.0.
    - [Attention-24](https://onnx.ai/onnx/operators/onnx__Attention.html).
    """

    code = "KV306"
    name = "trt-attention-form"
    severity = "error"
    basis = "symbolic"
    runtime = "tensorrt"
    example_target = "tensorrt@11.0"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 7, 5] key, float[2, 3, 7, 5] value,
            int64[2] valid) => (float[2, 3, 1, 5] y) {
            [attention] y = Attention (query, key, value, , , , valid)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 7, 5] key, float[2, 3, 7, 5] value,
            float[2, 1, 1, 7] mask) => (float[2, 3, 1, 5] y) {
            [attention] y = Attention (query, key, value, mask)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Compare each Attention with the form that is taken."""
        from onnx_kvtool.lint.facts.release import limits_named, lowering_command, runtime_words
        from onnx_kvtool.ops.attention import Attention

        if not limits_named(target, "attention-4d"):
            return
        for site in context.sites:
            if site.node.op_type != "Attention" or site.node.domain:
                continue
            view = site.view(Attention)
            reasons = [] if view is None else list(_reasons(view))
            if reasons:
                yield self.found(
                    site.location(),
                    f"{runtime_words(target)} takes no Attention with {', '.join(reasons)}",
                    help="use 4-dimensional operands and put the valid rows into a 4-dimensional "
                    f"mask, or lower the model for this release: {lowering_command(target)}",
                )


def _reasons(view: Attention) -> Iterator[str]:
    from onnx_kvtool.symbolic.dims import dims_of

    inputs = {
        "past_key": view.past_key,
        "past_value": view.past_value,
        "nonpad_kv_seqlen": view.nonpad_kv_seqlen,
    }
    for name, value in inputs.items():
        if value is not None:
            yield f"`{name}`"
    if view.softcap != 0:
        yield f"`softcap` {view.softcap:g}"
    for name in view.outputs:
        if name != "Y":
            yield f"the output `{name}`"
    operands = {"Q": view.query, "K": view.key, "V": view.value, "attn_mask": view.attn_mask}
    for name, value in operands.items():
        dims = dims_of(value)
        if dims is not None and len(dims) != _DIMENSIONS:
            yield f"{len(dims)}-dimensional `{name}`"
