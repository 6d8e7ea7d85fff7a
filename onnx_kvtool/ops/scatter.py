"""ScatterElements and ScatterND at opsets 11, 13, 16 and 18."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_kvtool.ops.view import MalformedNode, NodeView

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ScatterElements", "ScatterND"]


class _Scatter(NodeView):
    """What both scatters have in common.

    Attributes:
        data: Rank r >= 1.
        indices: Integer positions; negative ones count from the end.
        updates: Values to write.
        output: As `data`.
        reduction: `none`, `add`, `mul` (from 16), `max` or `min` (from 18); `none` below 16, where
            the attribute does not exist. `none` leaves duplicate indices undefined.
    """

    def __init__(self, node: ir.Node, opset: int) -> None:
        super().__init__(node, opset)
        self.data = self.required("data")
        self.indices = self.required("indices")
        self.updates = self.required("updates")
        self.output = node.outputs[0]
        declared = "reduction" in self.facts.attributes
        if not declared and "reduction" in node.attributes:
            raise MalformedNode(
                "unknown-attribute", f"`{node.op_type}` has no `reduction` at opset {opset}"
            )
        self.reduction = self.string("reduction") if declared else "none"
        allowed = {"none"}
        if self.facts.since_version >= 16:
            allowed |= {"add", "mul"}
        if self.facts.since_version >= 18:
            allowed |= {"max", "min"}
        if self.reduction not in allowed:
            raise MalformedNode(
                "bad-reduction",
                f"`reduction` is `{self.reduction}`, "
                f"expected one of {', '.join(sorted(allowed))} at opset {opset}",
            )


class ScatterElements(_Scatter):
    """ScatterElements-11/13/16/18: one index per element of `updates`, along `axis`.

    `indices` and `updates` have the same shape and the rank of `data`; indices are int32 or int64
    in [-s, s-1] for the size s of `axis`.

    Attributes:
        axis: As written, or the schema's default 0.
    """

    def __init__(self, node: ir.Node, opset: int) -> None:
        super().__init__(node, opset)
        self.axis = self.integer("axis")


class ScatterND(_Scatter):
    """ScatterND-11/13/16/18: one index tuple per slice of `updates`.

    `rank(updates) = rank(indices) + rank(data) - indices.shape[-1] - 1`; indices are int64 only, by
    the schema of every version.
    """
