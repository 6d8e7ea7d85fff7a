"""Caches that grow up to a window, and then drop their first rows for new ones.

`present = (past[-R:] ++ new)[-R:]`, which has min(P, R) rows after P tokens. Attention reads all of
`past[-R:] ++ new`. The fixed form is a circular cache of R + 1 rows, those that one token sees: the
row of position p is row p modulo R + 1. A Gather restores the rows of the past in order, so that
all later nodes stay unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op
from onnx_kvtool.ops.view import NodeView, given_input
from onnx_kvtool.rewrite.raising.growing.growth import End, FedBack
from onnx_kvtool.rewrite.raising.layout import TO_THE_END, bounds_along, constants
from onnx_kvtool.rewrite.raising.stage import Assumptions


@dataclass(eq=False, slots=True)
class Rolling(FedBack):
    """A cache that provably keeps only the last rows; its past is (..., min(P, R), ...).

    Attributes:
        rows: R, the most rows that it keeps.
        node: The Concat that puts new rows behind those of the past.
        new: The new rows.
        heads: The slices of the last R rows of the past; empty if the Concat reads the past itself.
        cut: The slice of the joined rows that is the present.
        shapes: The nodes that read the sizes of the past.
        assumed: The assumption that lets the rows be rotated.
    """

    rows: int
    node: ir.Node
    new: ir.Value
    heads: list[ir.Node]
    cut: ir.Node
    shapes: list[ir.Node]
    assumed: str

    @property
    def ends(self) -> tuple[End, ...]:
        """The one way to the present."""
        graph = self.node.graph
        assert graph is not None
        index = graph.outputs.index(self.present)
        return (End(graph, index, self.new, self.node, self.node.outputs[0], self.axis),)

    @property
    def capacity(self) -> int:
        """Rows of the circular cache: those that a query sees, including its own."""
        return self.rows + 1


def is_rolling(cache: Cache) -> bool:
    """Return whether a cache grows by a Concat up to a window, and then drops rows."""
    if cache.kind != "concat" or cache.is_growing or cache.past_value is None:
        return False
    first = given_input(cache.node, 0)
    head = None if first is None else first.producer()
    is_slice = head is not None and head.op_type == "Slice"
    is_cut = head is not None and is_slice and given_input(head, 0) is cache.past_value
    return cache.is_rolling or is_cut


def rolling_of(
    cache: Cache, place: Location, model: ir.Model, assumptions: Assumptions, opset: int
) -> Rolling:
    """Prove that the present of a cache is the last R rows of its past and new ones.

    Args:
        cache: A cache that grows and drops rows, as the analysis finds.
        place: Where it grows, for the report.
        model: The model; types and shapes are on its values as far as they are known.
        assumptions: What may be taken for granted.
        opset: Version of the default domain.

    Raises:
        Unproven: If it is not, if other nodes read the past, or if the order of the rows may matter
            to the caller.
    """
    past, node = cache.past_value, cache.node
    output = next((v for v in model.graph.outputs if v.name == cache.present), None)
    if past is None or output is None or past not in model.graph.inputs or past.shape is None:
        raise Unproven(
            "not-fed-back",
            f"`{cache.present}` is no output that a caller feeds back",
        )
    cut = output.producer()
    if node.op_type != "Concat" or len(node.inputs) != 2 or node.graph is not model.graph:
        raise _refusal(past, f"`{node.name or node.op_type}` joins something else")
    axis = NodeView(node, opset).integer("axis") % len(past.shape)
    rows = None if cut is None else _last_rows(cut, axis, len(past.shape), opset)
    if cut is None or rows is None or cut.inputs[0] is not node.outputs[0]:
        text = f"`{output.name}` is not a constant number of the last rows of what is joined"
        raise _refusal(past, text)
    if axis == 0 or isinstance(past.shape[axis], int) or output.uses():
        text = f"`{output.name}` is read in the model, or has a fixed number of rows"
        raise _refusal(past, text)
    heads: list[ir.Node] = []
    shapes: list[ir.Node] = []
    first, new = node.inputs
    for reader, index in past.uses():
        if is_op(reader, "Shape"):
            shapes.append(reader)
        elif index == 0 and _last_rows(reader, axis, len(past.shape), opset) == rows:
            heads.append(reader)
        elif reader is not node or index != 0:
            raise _refusal(past, f"`{reader.name or reader.op_type}` reads the past as well")
    if first is not past and (first is None or first.producer() not in heads):
        raise _refusal(past, f"`{node.name or node.op_type}` does not begin with the past")
    if past.is_graph_output() or any(head.outputs[0].is_graph_output() for head in heads):
        raise _refusal(past, "rows of the past are an output")
    assert new is not None
    assumed = assumptions.grants("rotated-rows", past)
    if assumed is None:
        raise Unproven(
            "rolling-window",
            f"`{past.name}` keeps its last {rows} rows in their order, and a circular cache stores "
            "them rotated",
            assumption=f"rotated-rows:{past.name}",
        )
    return Rolling(place, past, output, axis, rows, node, new, heads, cut, shapes, assumed)


def _last_rows(node: ir.Node, axis: int, rank: int, opset: int) -> int | None:
    """Return how many last rows a Slice takes, a constant number; None for any other node."""
    if not is_op(node, "Slice") or given_input(node, 0) is None:
        return None
    start, end = bounds_along(NodeView(node, opset), axis, rank, constants) or (None, None)
    if start is None or start.number is None or end is None or end.number is None:
        return None
    return -start.number if start.number < 0 and end.number >= TO_THE_END else None


def _refusal(past: ir.Value, why: str) -> Unproven:
    text = f"`{past.name}` grows and drops rows, and {why}: it is no window"
    return Unproven("rows-move", text)
