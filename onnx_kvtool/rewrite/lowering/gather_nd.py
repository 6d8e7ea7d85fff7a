"""GatherND-12 with `batch_dims`, for opset 11."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import positions
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_gather_nd_12"]


def lower_gather_nd_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Put the batch coordinates in front of each index tuple.

    indices (b..., n..., k) becomes (b..., n..., len(b) + k), each tuple beginning with its b.

    Refuses an unknown rank of the indices.
    """
    view = NodeView(node, context.opset_of(node))
    data, indices, batch = view.required("data"), view.required("indices"), 0
    if "batch_dims" in view.facts.attributes:
        batch = view.integer("batch_dims")
    dims, sizes = dims_of(indices), dims_of(data)
    if dims is None or sizes is None:
        raise Refusal(
            "unknown-rank",
            f"`batch_dims` is {batch}, and the rank of the data or of the indices is unknown",
            help="declare the shapes",
            lowest_opset=12,
        )
    rank = len(dims)
    counted = em.op("Slice", em.op("Shape", indices), em.constant([0], "from"), em.constant([-1]))
    tuples = em.op("Concat", counted, em.constant([1], "one"), attributes={"axis": 0})
    parts = []
    for axis in range(batch):
        place = positions(em, sizes[axis], data, axis, place=axis, rank=rank)
        parts.append(em.op("Expand", place, tuples, hint="batch"))  # (b..., n..., 1)
    whole = em.op("Concat", *parts, indices, attributes={"axis": -1}, hint="indices")
    dtype = data.dtype or ir.DataType.UNDEFINED
    return Replacement((em.op("GatherND", data, whole, dtype=dtype),))
