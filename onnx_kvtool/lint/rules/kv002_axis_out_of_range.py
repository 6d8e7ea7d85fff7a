"""KV002: the axis of a TensorScatter lies outside the rank of the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["AxisOutOfRange"]


class AxisOutOfRange(NodeRule):
    """The axis of a TensorScatter lies outside the rank of the cache.

    ## What it does

    Looks for a TensorScatter whose `axis` is not in [-r, r-1], where r is the rank of
    `past_cache` (of `update`, where the former is unknown).

    ## Why is this bad?

    There is no such dimension. onnx's shape inference and onnxruntime refuse the model.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html), `axis`:
      "Sequence dimension of the `past_cache` and `update` tensors."
    """

    code = "KV002"
    name = "axis-out-of-range"
    severity = "error"
    basis = "constant"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 4> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = -2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Hold `axis` against the rank."""
        from onnx_kvtool.lint.facts.operands import operands

        found = operands(context, site)
        if found is None or found.written_axis is None:
            return
        for value in (found.past, found.update):
            if value.shape is not None:
                rank = len(value.shape)
                if rank and not -rank <= found.written_axis < rank:
                    yield self.found(
                        site.location(),
                        f"`axis` is {found.written_axis}, but `{value.name}` has rank {rank}: "
                        f"expected {-rank} to {rank - 1}",
                        help="set `axis` to the dimension that counts tokens",
                    )
                return
