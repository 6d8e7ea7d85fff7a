"""KV117: the rows are written along another axis than the one Attention reads as the sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches.links import AxisMap
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["AxisDiffersFromLayout"]


class AxisDiffersFromLayout(NodeRule):
    """A TensorScatter writes along another axis than the one Attention takes as the sequence.

    ## What it does

    Follows the keys and the values of an Attention back to a TensorScatter, through Transpose,
    Reshape and the like, and compares the axis of the update with the sequence axis of the operand:
    axis 2 of (batch, heads, sequence, size), axis 1 of (batch, sequence, heads * size).

    ## Why is this bad?

    The new rows are laid across heads or features instead of across tokens. Where the sizes happen
    to fit, nothing fails, and the model answers wrongly. The default axis -2 is right for
    4-dimensional caches and for 3-dimensional ones, but not for a 4-dimensional cache in the order
    (batch, sequence, heads, size).

    ## References

    - [Attention-24](https://onnx.ai/onnx/operators/onnx__Attention.html): the layouts of K and V.
    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): the sequence
      dimension is "indicated by the `axis` attribute".
    """

    code = "KV117"
    name = "axis-differs-from-layout"
    severity = "warning"
    basis = "symbolic"
    operators = ("Attention",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 7, 5] past, float[2, 1, 7, 5] update,
            int64[2] start, int64[2] valid) => (float[2, 3, 1, 5] y, float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 1> (past, update, start)
            [attention] y = Attention (query, present, present, , , , valid)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 1, 5] query, float[2, 3, 7, 5] past, float[2, 3, 1, 5] update,
            int64[2] start, int64[2] valid) => (float[2, 3, 1, 5] y, float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
            [attention] y = Attention (query, present, present, , , , valid)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Map the axis of the update to the layout of the operand."""
        from onnx_kvtool.ops.attention import Attention

        view = site.view(Attention)
        if view is None:
            return
        seen: set[int] = set()
        for operand in (view.key, view.value):
            if id(operand) in seen:
                continue
            seen.add(id(operand))
            rank = None if operand.shape is None else len(operand.shape)
            expected = {3: 1, 4: 2}.get(rank or 0)
            found = _written_axis(operand, site, context)
            if expected is None or found is None or found[1] == expected:
                continue
            scatter, axis = found
            yield self.found(
                site.location(operand),
                f"`{operand.name}` is written along its axis {axis} by "
                f"`{scatter.name or 'unnamed'}` (TensorScatter), and Attention takes axis "
                f"{expected} of its {rank} dimensions as the sequence",
                help=f"set `axis` of the TensorScatter so that it becomes axis {expected} here",
            )


def _written_axis(value: ir.Value, site: Site, context: Context) -> tuple[ir.Node, int] | None:
    """Return the TensorScatter behind `value` and the axis of `value` along which it writes."""
    from onnx_kvtool.analysis.caches.links import compose, inverted, link, map_axis
    from onnx_kvtool.ops.tensor_scatter import TensorScatter
    from onnx_kvtool.ops.view import MalformedNode

    axes: AxisMap = "same"
    current = value
    for _ in range(8):
        node = current.producer()
        if node is not None and node.op_type == "TensorScatter" and not node.domain:
            try:
                written = TensorScatter(node, site.opset or 0).sequence_axis
            except MalformedNode:
                return None
            axis = map_axis(inverted(axes), written)
            return None if axis is None else (node, axis)
        found = link(current, context.folder)
        if found is None or found.how not in ("same", "view", "cast"):
            return None
        axes, current = compose(axes, found.axes), found.source
    return None
