"""Max-12 and Min-12 of 64-bit integers, for opset 11."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import covers, one_shape
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Replacement
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["lower_max_min_12"]


def lower_max_min_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement | None:
    """Compare and choose, operand by operand: Where(Less(a, b), b, a), both spread to one shape.

    Only for int64 and uint64, which no type holds that Max takes at opset 11; narrower integers
    take the way through a float that holds them.
    """
    values = [value for value in node.inputs if value is not None]
    dtype = values[0].dtype
    if dtype not in (ir.DataType.INT64, ir.DataType.UINT64):
        return None
    result, dims = values[0], dims_of(values[0])
    compare = "Less" if node.op_type == "Max" else "Greater"
    for value in values[1:]:
        beaten = em.op(compare, result, value, dtype=ir.DataType.BOOL)
        others = dims_of(value)
        one, other = one_shape(em, value, result, dims), one_shape(em, result, value, others)
        result = em.op("Where", beaten, one, other, dtype=dtype)
        dims = dims if covers(dims, others) else others if covers(others, dims) else None
    if len(values) == 1:
        result = em.op("Identity", result, dtype=dtype)
    return Replacement((result,))
