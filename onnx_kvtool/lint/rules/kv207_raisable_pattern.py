"""KV207: a cache is updated by a scatter that does what TensorScatter does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["RaisablePattern"]


class RaisablePattern(ModelRule):
    """A cache is updated by a scatter that does what TensorScatter does.

    ## What it does

    Looks for caches that a ScatterND or a ScatterElements updates at positions that provably count
    up by one from a start, along one axis, each other index being its own coordinate. Positions
    that are a free input of the model are not counted, nor are other forms of an update.

    ## Why is this bad?

    It is not, where the runtime has no TensorScatter. Where it has, one operator says what a tensor
    of indices hides: that a cache is written, along which axis and from which row. Runtimes may
    then write in place, and the checks of this group see more.

    ## References

    - [KV cache in ONNX](https://onnx.ai/onnx/technical/kv_cache.html).
    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html).
    """

    code = "KV207"
    name = "raisable-pattern"
    severity = "info"
    basis = "symbolic"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[2, 3, 16, 5] past, float[2, 3, 4, 5] update, int64[2] start)
            => (float[2, 3, 16, 5] present)
            <int64[3] axes = {1, 2, 3}, int64[1, 1, 4, 1] count = {0, 1, 2, 3},
             int64[4] shape = {2, 3, 4, 5}> {
            first = Unsqueeze (start, axes)
            rows = Add (first, count)
            index = Expand (rows, shape)
            [cache] present = ScatterElements <axis: int = 2> (past, index, update)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3, 16, 5] past, float[2, 3, 4, 5] update, int64[2] start)
            => (float[2, 3, 16, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Read the cache table, which knows where scatters write."""
        if not context.sites_of("ScatterND", "ScatterElements"):
            return
        for cache in context.caches:
            if cache.kind not in ("scatter_nd", "scatter_elements") or cache.mode is None:
                continue
            if cache.axis is None or not cache.past:
                continue
            start = f"`{cache.write_indices}`" if cache.write_indices else "a fixed start"
            yield self.found(
                cache.location,
                f"writes rows that count up from {start} along axis {cache.axis} of `{cache.past}` "
                f"({cache.mode} mode), as TensorScatter does",
                help="run `kvtool raise`: it proves that both are equal and replaces the scatter, "
                "or names the assumption that it lacks",
            )
