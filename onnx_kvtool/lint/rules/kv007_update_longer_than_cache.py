"""KV007: the update of a TensorScatter has more rows than the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UpdateLongerThanCache"]


class UpdateLongerThanCache(NodeRule):
    """The update of a TensorScatter has more rows than the cache can hold.

    ## What it does

    Compares the sizes of `update` and `past_cache` along `axis`: numbers, or computed sizes of
    which one is the larger whatever the inputs are. Both modes count.

    ## Why is this bad?

    The rows do not fit. In circular mode they would meet: the last rows overwrite the first of the
    same update, which the operator does not allow either. onnx's checker and its shape inference
    say nothing; onnxruntime 1.31 fails when the node runs.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "where
      sequence_length <= max_sequence_length".
    """

    code = "KV007"
    name = "update-longer-than-cache"
    severity = "error"
    basis = "symbolic"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 8, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "circular"> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 7, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "circular"> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare the rows."""
        from onnx_kvtool.lint.facts.operands import operands
        from onnx_kvtool.symbolic.bounds import Facts, below

        found = operands(context, site)
        sizes = None if found is None else found.sizes(context.index_maps(site))
        if found is None or sizes is None:
            return
        capacity, length = sizes
        if below(capacity, length, Facts()):
            yield self.found(
                site.location(found.update),
                f"`{found.update.name}` has {length} rows along axis {found.axis}, "
                f"`{found.past.name}` has room for {capacity}",
                help="make the cache larger, or feed the rows in several steps",
            )
