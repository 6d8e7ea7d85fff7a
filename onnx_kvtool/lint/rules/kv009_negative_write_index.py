"""KV009: a TensorScatter starts at a negative row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["NegativeWriteIndex"]


class NegativeWriteIndex(NodeRule):
    """A TensorScatter starts at a negative row.

    ## What it does

    Looks for a negative start in `write_indices`: a constant, one that the graph computes from
    constants and sizes, or one that is negative whatever the inputs are. In linear mode that is an
    error, in circular mode a warning.

    ## Why is this bad?

    No text says that a negative start counts from the end of the cache, and implementations differ:
    onnxruntime 1.31 fails in both modes, onnx.reference 1.23 counts from the end in linear mode and
    takes the modulus in circular mode.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "The optional
      `write_indices` input indicates the write index for each sample in the batch".
    """

    code = "KV009"
    name = "negative-write-index"
    severity = "error"
    basis = "symbolic"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 4, 16, 5] past, float[2, 4, 3, 5] update)
            => (float[2, 4, 16, 5] present) {
            start = Constant <value_ints: ints = [6, -3]> ()
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 4, 16, 5] past, float[2, 4, 3, 5] update)
            => (float[2, 4, 16, 5] present) {
            start = Constant <value_ints: ints = [6, 13]> ()
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Look at the starts row by row."""
        from onnx_kvtool.lint.facts.operands import operands, rows
        from onnx_kvtool.symbolic.bounds import interval

        found = operands(context, site)
        if found is None or found.write_indices is None or found.mode is None:
            return
        for start in rows(context, site, found):
            if interval(start.first, start.facts)[1] < 0:
                circular = found.mode == "circular"
                yield self.found(
                    site.location(found.write_indices),
                    f"starts at a negative row of `{found.past.name}`: {start.text}, expected 0 or "
                    "more",
                    help="count from the front: add the size of the cache to the start",
                    severity="warning" if circular else "error",
                )
                return
