"""KV307: some releases of onnxruntime compute Attention with a number of valid rows wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["OrtAttentionNonpad"]


class OrtAttentionNonpad(TargetRule):
    """onnxruntime 1.24 to 1.27 computes Attention with `nonpad_kv_seqlen` wrongly.

    ## What it does

    With `--target onnxruntime`, looks for an Attention with `nonpad_kv_seqlen` in a release that
    ignores it (1.24), and for one that also has `is_causal=1` and more than one query in a release
    that aligns the causal limit to the left instead of to the valid length (1.25 to 1.27). Where
    the number of queries is not a number, the finding is a warning: a single query is computed
    rightly.

    ## Why is this bad?

    The model loads, runs and gives wrong results without a word: in whole decoders the logits are
    off by more than 1.

    ## References

    - 696 Attention models in onnxruntime 1.24.4 to 1.31.1 beside onnx.reference 1.23.2; 1.28 and
      later agree with it.
    - [Attention-24](https://onnx.ai/onnx/operators/onnx__Attention.html), `nonpad_kv_seqlen`.
    """

    code = "KV307"
    name = "ort-attention-nonpad"
    severity = "error"
    basis = "symbolic"
    runtime = "onnxruntime"
    example_target = "onnxruntime@1.26.0"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 4, 5] query, float[2, 3, 7, 5] key, float[2, 3, 7, 5] value,
            int64[2] valid) => (float[2, 3, 4, 5] y) {
            [attention] y = Attention <is_causal: int = 1> (query, key, value, , , , valid)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 4, 5] query, float[2, 3, 7, 5] key, float[2, 3, 7, 5] value,
            bool[2, 1, 4, 7] mask) => (float[2, 3, 4, 5] y) {
            [attention] y = Attention (query, key, value, mask)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Look at each Attention that has the input."""
        from onnx_kvtool.lint.facts.release import limits_named, lowering_command, runtime_words
        from onnx_kvtool.ops.attention import Attention
        from onnx_kvtool.symbolic.dims import dims_of

        for limit in limits_named(target, "attention-nonpad-ignored", "attention-causal-nonpad"):
            for site in context.sites:
                if site.node.op_type != "Attention" or site.node.domain:
                    continue
                view = site.view(Attention)
                if view is None or view.nonpad_kv_seqlen is None:
                    continue
                text, is_proved = "", True
                if limit.name == "attention-causal-nonpad":
                    dims = dims_of(view.query)
                    queries = dims[-2] if dims is not None and len(dims) > 1 else None
                    if not view.is_causal or queries == 1:
                        continue
                    text = f", here for {queries or 'an unknown number of'} queries"
                    is_proved = isinstance(queries, int)
                yield self.found(
                    site.location(view.nonpad_kv_seqlen),
                    f"{runtime_words(target)} {limit.reason}{text}",
                    help="run it with onnxruntime 1.28 or later, or lower the model for this "
                    f"release: {lowering_command(target)}",
                    severity=None if is_proved else "warning",
                )
