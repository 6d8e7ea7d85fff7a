"""KV102: one past feeds several TensorScatter, of which one at most can run in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["PastScatteredTwice"]


class PastScatteredTwice(ModelRule):
    """One past is the `past_cache` of two or more TensorScatter.

    ## What it does

    Looks for an input of the model that several TensorScatter take as their past, directly, behind
    an Identity, or through a function. Two that stand in different branches of one If are no such
    case, nor is a second update of the result of the first.

    ## Why is this bad?

    One of the updates at most can be done in the buffer of the past; for the others the runtime
    copies the cache. Each of the presents lacks the rows that the others write, so that no single
    one of them is the cache after the step. Mostly the second node was meant to take the present of
    the first, or the past of another layer.

    ## References

    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html): the backend may alias past
      and present only if "the input to `TensorScatter` is not subsequently reused by other ops".
    """

    code = "KV102"
    name = "past-scattered-twice"
    severity = "warning"
    basis = "symbolic"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past_key, float[2, 3, 1, 5] key, float[2, 3, 1, 5] value,
            int64[2] start) => (float[2, 3, 7, 5] present_key, float[2, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_key, value, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past_key, float[2, 3, 7, 5] past_value,
            float[2, 3, 1, 5] key, float[2, 3, 1, 5] value, int64[2] start)
            => (float[2, 3, 7, 5] present_key, float[2, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_value, value, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Group the updates by the input that they start from."""
        from onnx_kvtool.lint.facts.past import Branches, levels
        from onnx_kvtool.lint.facts.words import node_words

        by_past: dict[ir.Value, list[Cache]] = {}
        for cache in context.caches:
            if cache.kind == "tensor_scatter":
                *_, (root, _, _) = levels(cache, context)
                if root.is_graph_input():
                    by_past.setdefault(root, []).append(cache)
        branches = Branches(context)
        for past, caches in by_past.items():
            first, *others = caches
            for other in others:
                if branches.exclude(first.node, other.node):
                    continue
                count = f"{len(caches)} TensorScatter"
                yield self.found(
                    other.location,
                    f"`{past.name}` is the `past_cache` of {count}, of {node_words(first.node)} "
                    "as well, and one of them at most can be done in place",
                    help="give each update a past of its own, or scatter into the first present",
                )
