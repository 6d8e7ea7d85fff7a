"""KV008: a TensorScatter in linear mode writes past the end of the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["LinearOverflow"]


class LinearOverflow(NodeRule):
    """A TensorScatter in linear mode writes past the end of the cache.

    ## What it does

    Looks for a start in `write_indices` that leaves too little room for the rows of the update:
    a constant, one that the graph computes from constants and sizes, or one that is too large
    whatever the inputs are. A start that the caller chooses is not judged. Where the update is
    longer than the whole cache, KV007 says so.

    ## Why is this bad?

    Nothing wraps in linear mode. onnx's checker and shape inference do not look at the numbers;
    onnxruntime 1.31 fails when the node runs.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html), `mode`:
      "`linear` mode requires write_indices+sequence_length<=max_sequence_length."
    """

    code = "KV008"
    name = "linear-overflow"
    severity = "error"
    basis = "symbolic"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 4, 16, 5] past, float[2, 4, 3, 5] update)
            => (float[2, 4, 16, 5] present) {
            start = Constant <value_ints: ints = [13, 14]> ()
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 4, 16, 5] past, float[2, 4, 3, 5] update)
            => (float[2, 4, 16, 5] present) {
            start = Constant <value_ints: ints = [13, 12]> ()
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare the end of what is written with the size of the cache, row by row."""
        from onnx_kvtool.lint.facts.operands import operands, rows
        from onnx_kvtool.symbolic.bounds import Facts, below, interval

        found = operands(context, site)
        if found is None or found.mode != "linear" or found.write_indices is None:
            return
        sizes = found.sizes(context.index_maps(site))
        if sizes is None or below(sizes[0], sizes[1], Facts()):
            return
        capacity, length = sizes
        for start in rows(context, site, found):
            if interval(start.first + length - capacity, start.facts)[0] <= 0:
                continue
            last = start.first + length - 1
            which = f"rows {start.first} to {last}" if length.number != 1 else f"row {last}"
            yield self.found(
                site.location(found.write_indices),
                f"writes {which} along axis {found.axis} of `{found.past.name}` (size {capacity}): "
                f"{start.text} + sequence_length={length} > {capacity}",
                help="pass a smaller start, or use `mode=circular`",
            )
            return
