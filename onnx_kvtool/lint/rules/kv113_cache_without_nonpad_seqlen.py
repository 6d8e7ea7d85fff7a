"""KV113: Attention reads a whole cache and is not told which rows are valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["CacheWithoutNonpadSeqlen"]


class CacheWithoutNonpadSeqlen(NodeRule):
    """Attention reads the present of a TensorScatter with neither a length nor a mask.

    ## What it does

    Looks for an Attention whose keys or values are the present of a TensorScatter, directly or
    behind nodes that only arrange it differently, and which has neither `nonpad_kv_seqlen` nor
    `attn_mask`. A causal Attention over a cache that is filled from slot 0, without
    `write_indices`, sees valid rows only and is left alone.

    ## Why is this bad?

    A cache of fixed size has slots that no token has been written to. Without a length or a mask
    they take part in the softmax: zeros draw weight away from the tokens, and what is left over
    from another sequence is attended to.

    ## References

    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html): "an optional
      `nonpad_kv_seqlen` input can be used to indicate the number of valid (non-padding) tokens in
      each sample".
    - [Attention-24](https://onnx.ai/onnx/operators/onnx__Attention.html).
    """

    code = "KV113"
    name = "cache-without-nonpad-seqlen"
    severity = "warning"
    basis = "heuristic"
    operators = ("Attention",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 7, 5] past_key, float[2, 3, 7, 5] past_value,
            float[2, 3, 1, 5] key, float[2, 3, 1, 5] value, int64[2] start)
            => (float[2, 3, 1, 5] y, float[2, 3, 7, 5] present_key,
                float[2, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_value, value, start)
            [attention] y = Attention (query, present_key, present_value)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 7, 5] past_key, float[2, 3, 7, 5] past_value,
            float[2, 3, 1, 5] key, float[2, 3, 1, 5] value, int64[2] start, int64[2] valid)
            => (float[2, 3, 1, 5] y, float[2, 3, 7, 5] present_key,
                float[2, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_value, value, start)
            [attention] y = Attention (query, present_key, present_value, , , , valid)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Look behind keys and values for a TensorScatter."""
        from onnx_kvtool.lint.facts.past import scatter_behind
        from onnx_kvtool.ops.attention import Attention

        view = site.view(Attention)
        if view is None or view.attn_mask is not None or view.nonpad_kv_seqlen is not None:
            return
        for what, operand in (("keys", view.key), ("values", view.value)):
            scatter = scatter_behind(operand)
            if scatter is None:
                continue
            starts_at_zero = len(scatter.inputs) < 3 or scatter.inputs[2] is None
            if view.is_causal and starts_at_zero:
                continue
            yield self.found(
                site.location(operand),
                f"the {what} `{operand.name}` are the whole cache of `{scatter.name or 'unnamed'}` "
                "(TensorScatter), and neither `nonpad_kv_seqlen` nor `attn_mask` says which rows "
                "are valid",
                help="pass the number of valid rows as `nonpad_kv_seqlen`, or a mask",
            )
            return
