"""KV001: the axis of a TensorScatter is the batch dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["AxisIsBatch"]


class AxisIsBatch(NodeRule):
    """The axis of a TensorScatter is the batch dimension.

    ## What it does

    Looks for a TensorScatter whose `axis` is dimension 0 of the cache, written as 0 or counted from
    the end.

    ## Why is this bad?

    Dimension 0 is the batch, and each batch row has a start of its own in `write_indices`: along
    that dimension the update has no meaning. onnx's shape inference and onnxruntime refuse such a
    model.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html), `axis`: "It
      cannot be 0 (the batch dimension)."
    """

    code = "KV001"
    name = "axis-is-batch"
    severity = "error"
    basis = "constant"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 0> (past, update, start)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Hold `axis` against the rank of the cache."""
        from onnx_kvtool.ops.tensor_scatter import TensorScatter
        from onnx_kvtool.ops.view import MalformedNode

        view = site.view(TensorScatter)
        if view is None:
            return
        try:
            _ = view.sequence_axis
        except MalformedNode as error:
            if error.code == self.name:
                yield self.found(
                    site.location(),
                    error.message,
                    help="set `axis` to the dimension that counts tokens",
                )
