"""KV004: cache and update of a TensorScatter differ in rank, or have no sequence dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["RankMismatch"]


class RankMismatch(NodeRule):
    """The operands of a TensorScatter differ in rank, or have fewer than two dimensions.

    ## What it does

    Compares the ranks of `past_cache` and `update`, where they are known, and looks for one below
    2.

    ## Why is this bad?

    An update has the shape of the cache but for the number of rows, and there are two dimensions at
    least, the batch and the sequence. onnx's shape inference and onnxruntime refuse the model.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "The `update`
      tensor's shape only differs from the cache tensors in the sequence dimension".
    """

    code = "KV004"
    name = "rank-mismatch"
    severity = "error"
    basis = "symbolic"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 1, 15] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare the ranks."""
        from onnx_kvtool.lint.facts.operands import operands
        from onnx_kvtool.lint.facts.words import shape_words

        found = operands(context, site)
        if found is None:
            return
        past, update = found.past_dims, found.update_dims
        if past is not None and update is not None and len(past) != len(update):
            yield self.found(
                site.location(found.update),
                f"`{found.update.name}` has rank {len(update)} {shape_words(update)}, "
                f"`{found.past.name}` has rank {len(past)} {shape_words(past)}: expected one rank",
                help="reshape the update to the layout of the cache",
            )
            return
        for value, dims in ((found.past, past), (found.update, update)):
            if dims is not None and len(dims) < 2:
                yield self.found(
                    site.location(value),
                    f"`{value.name}` has rank {len(dims)}, expected at least 2: a batch and a "
                    "sequence dimension",
                    help="add the dimension that is missing",
                )
                return
