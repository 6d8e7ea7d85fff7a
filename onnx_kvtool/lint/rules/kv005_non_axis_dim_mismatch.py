"""KV005: cache and update of a TensorScatter differ in another dimension than the sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["NonAxisDimMismatch"]


class NonAxisDimMismatch(NodeRule):
    """The update of a TensorScatter differs from the cache in another dimension than the sequence.

    ## What it does

    Compares every dimension of `past_cache` and `update` but the one that `axis` names. Two numbers
    that differ count, and two computed sizes that differ whatever the inputs are. Two names that
    differ may stand for one size and do not count, nor does a name beside a number.

    ## Why is this bad?

    Every row of the update goes to the cache whole: batch, heads and head size have to be the same.
    Where they differ the layouts are mixed up, (batch, heads, tokens, size) with (batch, tokens,
    heads, size), or `axis` names another dimension than the one that counts tokens. onnx's full
    check and onnxruntime refuse the model where the numbers are written in it.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "The `update`
      tensor's shape only differs from the cache tensors in the sequence dimension".
    """

    code = "KV005"
    name = "non-axis-dim-mismatch"
    severity = "error"
    basis = "symbolic"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 4, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[batch, 3, 7, 5] past, float[rows, 3, 1, 5] update, int64[batch] start)
            => (float[batch, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare the dimensions one by one."""
        from onnx_kvtool.lint.facts.operands import operands
        from onnx_kvtool.lint.facts.words import shape_words
        from onnx_kvtool.symbolic.bounds import Facts, interval

        found = operands(context, site)
        if found is None or found.axis is None:
            return
        maps = context.index_maps(site)
        past, update = maps.shape(found.past), maps.shape(found.update)
        if past is None or update is None or len(past) != len(update):
            return
        differing: list[str] = []
        for axis, (one, other) in enumerate(zip(update, past, strict=True)):
            if axis == found.axis or one == other:
                continue
            low, high = interval(one - other, Facts())
            if low > 0 or high < 0:
                differing.append(f"{one} along dimension {axis}, not {other}")
        if differing:
            yield self.found(
                site.location(found.update),
                f"`{found.update.name}` {shape_words(found.update_dims)} has size "
                f"{' and '.join(differing)} as `{found.past.name}` {shape_words(found.past_dims)}; "
                f"only dimension {found.axis}, the `axis`, may differ",
                help="transpose or reshape the update to the layout of the cache, or name the "
                "sequence dimension with `axis`",
            )
