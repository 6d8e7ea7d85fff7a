"""KV209: caches are copied whole at each step, because they grow, or because their rows move up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["GrowingCache"]


class GrowingCache(ModelRule):
    """Caches grow with every step, or roll, so that each step copies all of their rows.

    ## What it does

    Says once per model how many caches come out of a step with the rows of the past and the new
    ones, by Concat, or inside Attention or GroupQueryAttention, and what a step copies for that.
    Once more, how many are windows that keep the last rows, and move them up to make room for new
    ones. Nothing is wrong with such a model.

    ## Why is this bad?

    A step writes one row, and copies all the rows before it into a new buffer: the longer the
    sequence, the slower each token. No buffer can be bound for good, since it has another size at
    each step, and toolchains that compile for fixed shapes refuse the model. A cache of a fixed
    number of rows is written in place by TensorScatter, and a window in a circular one, whose rows
    come out rotated.

    ## References

    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html).
    - [`kvtool raise`](../commands/raise.md), which gives caches a capacity.
    """

    code = "KV209"
    name = "growing-cache"
    severity = "info"
    basis = "symbolic"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[B, 3, P, 5] past, float[B, 3, S, 5] update)
            => (float[B, 3, T, 5] present) {
            [cache] present = Concat <axis: int = 2> (past, update)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[B, 3, 16, 5] past, float[B, 3, S, 5] update, int64[B] start)
            => (float[B, 3, 16, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Read the cache table, which knows what grows."""
        from onnx_kvtool.analysis.caches.footprint import growing, growth_in_words
        from onnx_kvtool.analysis.caches.windows import (
            rolling,
            rolling_command,
            rolling_in_words,
        )

        caches = growing(context.caches)
        if caches:
            yield self.found(
                caches[0].location,
                growth_in_words(caches),
                help="run `kvtool raise --capacity N`: it gives them N rows, written in place",
            )
        windows = rolling(context.caches)
        if windows:
            command = rolling_command(windows)
            yield self.found(
                windows[0].location,
                rolling_in_words(windows),
                help=f"run `{command}`: circular caches are written in place",
            )
