"""CumProd-26, for opsets below 26."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.run_time_axes import axis_marks, switch
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_cum_prod_26"]


def lower_cum_prod_26(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Multiply along the axis with a Scan, in the order in which CumProd multiplies.

    An axis that is known at run time only takes one If per axis of the data.

    Refuses an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data, axis = view.required("x"), view.required("axis")
    exclusive, reverse = view.integer("exclusive") != 0, view.integer("reverse") != 0
    dims, dtype = dims_of(data), data.dtype
    if dims is None or dtype is None or not dims:
        raise Refusal(
            "unknown-rank",
            f"the rank of `{data.name}` is unknown",
            help="declare the shape of the input",
        )
    rank = len(dims)
    known = context.folder.integers(axis)
    if known is not None or rank == 1:
        place = 0 if known is None else int(known.ravel()[0]) % rank
        return Replacement((_scan(em, data, dtype, rank, place, exclusive, reverse),))
    marks, result = axis_marks(em, axis, rank), data
    for place in range(rank):
        result = switch(
            em,
            marks,
            place,
            result,
            lambda value, place=place: _scan(  # type: ignore[misc]
                em, value, dtype, rank, place, exclusive, reverse
            ),
        )
    return Replacement((result,))


def _scan(
    em: Emitter,
    data: ir.Value,
    dtype: ir.DataType,
    rank: int,
    axis: int,
    exclusive: bool,
    reverse: bool,
) -> ir.Value:
    """Return the products along one axis.

    body(product, slice): next = product * slice; gives `product` when exclusive, else `next`
    """
    others = em.constant([a for a in range(rank) if a != axis], "others")
    shape = em.op("Gather", em.op("Shape", data), others, hint="slice_shape")  # (rank - 1,)
    one = ir.tensor(np.ones(1, dtype.numpy()))
    ones = em.op("ConstantOfShape", shape, attributes={"value": one}, dtype=dtype)
    unknown = ir.Shape([None] * (rank - 1))
    dims = dims_of(data)
    sizes = unknown if dims is None else ir.Shape([d for a, d in enumerate(dims) if a != axis])
    fresh = em.scope.names.fresh
    product = ir.Value(name=fresh("product"), type=ir.TensorType(dtype), shape=unknown)
    part = ir.Value(name=fresh("slice"), type=ir.TensorType(dtype), shape=unknown)

    def step() -> list[ir.Value]:
        following = em.op("Mul", product, part, dtype=dtype)
        given = em.op("Identity", product if exclusive else following, dtype=dtype)
        given.shape = sizes  # which nothing else says where there are no slices
        return [following, given]

    attributes: dict[str, AttributeValue] = {
        "body": em.nested(step, [product, part], hint="body"),
        "num_scan_inputs": 1,
        "scan_input_axes": [axis],
        "scan_input_directions": [int(reverse)],
        "scan_output_axes": [axis],
        "scan_output_directions": [int(reverse)],
    }
    _, result = em.multi("Scan", ones, data, attributes=attributes, dtypes=(dtype, dtype))
    result.shape = data.shape and ir.Shape(data.shape)
    return result
