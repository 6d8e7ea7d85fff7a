"""KV208: many nodes compute what one Attention does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["DecomposedAttention"]


class DecomposedAttention(ModelRule):
    """Products, masks and a Softmax compute what one Attention does.

    ## What it does

    Looks for a Softmax between a product of queries and keys and one with values, and proves, as
    `kvtool raise` does, that Attention computes the same: heads, scale, softcap and mask as they
    are, whatever nodes say it. What is not proven to be equal is not mentioned: probabilities that
    are read elsewhere, a mask that may be broadcast, a Softmax over something else. Nothing is said
    of functions, whose sizes are known at calls alone, nor where a `--target` has no Attention. The
    first of a model is proven; the others are counted.

    ## Why is this bad?

    It is not, where the runtime has no Attention. Where it has, one node needs no room for the
    scores and probabilities of all heads, reads grouped keys and values where they are, and is
    faster, the more the longer the cache is ([performance](../performance.md)).

    ## References

    - [Attention-24](https://onnx.ai/onnx/operators/onnx__Attention.html).
    - [`kvtool raise`](../commands/raise.md), which writes it.
    """

    code = "KV208"
    name = "decomposed-attention"
    severity = "info"
    basis = "symbolic"

    bad = """
        <ir_version: 8, opset_import: ["": 18]>
        encoder (float[B, 3, L, 5] query, float[B, 3, S, 5] key, float[B, 3, S, 7] value)
            => (float[B, 3, L, 7] y) <float scale = {0.25}> {
            turned = Transpose <perm: ints = [0, 1, 3, 2]> (key)
            product = MatMul (query, turned)
            scores = Mul (product, scale)
            [softmax] probabilities = Softmax <axis: int = -1> (scores)
            y = MatMul (probabilities, value)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        encoder (float[B, 3, L, 5] query, float[B, 3, S, 5] key, float[B, 3, S, 7] value)
            => (float[B, 3, L, 7] y) {
            [attention] y = Attention <scale: float = 0.25> (query, key, value)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Ask of each Softmax between two products what `raise` asks."""
        from onnx_kvtool.core.quantity import counted
        from onnx_kvtool.lint.facts.decomposed import first_attention
        from onnx_kvtool.lint.facts.release import has_operator

        if not all(has_operator(target, "Attention-24") for target in context.targets):
            return
        found = first_attention(context)
        if found is not None:
            site, fusion, count = found
            queries, keys, values = (operand.value.name for operand in fusion.operands)
            more = f" ({counted(count - 1, 'more candidate')})" if count > 1 else ""
            yield self.found(
                site.location(),
                f"computes from `{queries}`, `{keys}` and `{values}` in many nodes what one "
                f"Attention does{more}",
                help="run `kvtool raise`: it proves that both are equal and writes the Attention",
            )
