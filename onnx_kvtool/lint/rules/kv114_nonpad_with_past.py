"""KV114: Attention is given both an external and an internal cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["NonpadWithPast"]


class NonpadWithPast(NodeRule):
    """Attention has `nonpad_kv_seqlen` together with `past_key` or `past_value`.

    ## What it does

    Looks for an Attention-24 or later with the input `nonpad_kv_seqlen` and one of the inputs
    `past_key` and `past_value`.

    ## Why is this bad?

    The two stand for two ways to keep a cache: outside, updated by TensorScatter and with a number
    of valid rows, or inside, where the operator appends the new rows to the past. The operator
    forbids both at once; onnx's checker lets the model pass, and onnxruntime fails when it runs it.

    ## References

    - [Attention-24](https://onnx.ai/onnx/operators/onnx__Attention.html), `nonpad_kv_seqlen`: it
      "should not be used together with `past_key` and `past_value` inputs or `present_key` and
      `present_value` outputs".
    """

    code = "KV114"
    name = "nonpad-with-past"
    severity = "error"
    basis = "constant"
    operators = ("Attention",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 1, 5] key, float[2, 3, 1, 5] value,
            float[2, 3, 7, 5] past_key, float[2, 3, 7, 5] past_value, int64[2] valid)
            => (float[2, 3, 1, 5] y, float[2, 3, 8, 5] present_key,
                float[2, 3, 8, 5] present_value) {
            [attention] y, present_key, present_value =
                Attention (query, key, value, , past_key, past_value, valid)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 1, 5] key, float[2, 3, 1, 5] value,
            float[2, 3, 7, 5] past_key, float[2, 3, 7, 5] past_value)
            => (float[2, 3, 1, 5] y, float[2, 3, 8, 5] present_key,
                float[2, 3, 8, 5] present_value) {
            [attention] y, present_key, present_value =
                Attention (query, key, value, , past_key, past_value)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Read the node through its view."""
        from onnx_kvtool.core.quantity import enumerated
        from onnx_kvtool.ops.attention import Attention

        view = site.view(Attention)
        if view is None or view.nonpad_kv_seqlen is None:
            return
        pasts = {"past_key": view.past_key, "past_value": view.past_value}
        given = [name for name, value in pasts.items() if value is not None]
        if given:
            yield self.found(
                site.location(view.nonpad_kv_seqlen),
                f"`nonpad_kv_seqlen` `{view.nonpad_kv_seqlen.name}` is given together with "
                f"{enumerated(given)}",
                help="keep the cache outside, or leave `nonpad_kv_seqlen` out and mask the padding",
            )
