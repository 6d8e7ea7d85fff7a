"""AffineGrid-20, for opsets below 20."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, unsqueeze, where
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_affine_grid_20"]


def lower_affine_grid_20(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement | None:
    """Multiply the places of a picture, or of a volume, with the transposed matrices.

    The function body, to which an unknown number of sizes is left, gives Range a vector, chooses
    with an If whose branches differ in shape, and divides by zero for a single row or column. Such
    a row is at -1, as a single layer is in the body.
    """
    view = NodeView(node, context.opset_of(node))
    theta, size = view.required("theta"), view.required("size")
    count, dtype = dims_of(size), theta.dtype
    if count not in ((4,), (5,)) or dtype is None:
        return None
    rank = 2 if count == (4,) else 3
    axes = [em.constant(axis, "axis") for axis in range(2, rank + 2)]
    counts = [em.op("Gather", size, axis, hint="count") for axis in axes]
    one = em.constant([1], "one")
    sizes = [em.op("Reshape", value, one, hint="count") for value in counts]
    shape = em.op("Concat", *sizes, one, attributes={"axis": 0}, hint="shape")
    columns = []
    for axis in reversed(range(rank)):  # width, height, depth
        line = _line(em, counts[axis], dtype, corners=view.integer("align_corners") != 0)
        line = unsqueeze(em, line, [d for d in range(rank + 1) if d != axis])
        columns.append(em.op("Expand", line, shape, dtype=dtype, hint="places"))
    unit = em.constant(np.ones(1, dtype.numpy()), "unit")
    columns.append(em.op("Expand", unit, shape, dtype=dtype, hint="ones"))
    places = em.op("Concat", *columns, attributes={"axis": rank}, dtype=dtype, hint="places")
    flat = em.op("Reshape", places, em.constant([-1, rank + 1], "shape"), dtype=dtype)
    turned = em.op("Transpose", theta, attributes={"perm": [0, 2, 1]}, dtype=dtype)
    moved = em.op("MatMul", flat, turned, dtype=dtype, hint="moved")  # (N, D * H * W, rank)
    batch = em.op("Gather", size, em.constant([0], "batch"), hint="batch")
    end = em.constant([rank], "rank")
    whole = em.op("Concat", batch, *sizes, end, attributes={"axis": 0}, hint="shape")
    return Replacement((em.op("Reshape", moved, whole, dtype=dtype),))


def _line(em: Emitter, count: ir.Value, dtype: ir.DataType, *, corners: bool) -> ir.Value:
    """Return the middles of equal parts of what is between -1 and 1, or with corners the ends.

    Args:
        em: Where to build.
        count: How many: (), int64.
        dtype: Of the result.
        corners: Whether the first is at -1 and the last at 1.

    Returns:
        (count,)
    """

    def op(op_type: str, *inputs: ir.Value) -> ir.Value:
        return em.op(op_type, *inputs, dtype=dtype)

    def number(value: float) -> ir.Value:
        return em.constant(np.array(value, dtype.numpy()), "number")

    numbered = em.op("Range", em.constant(0), count, em.constant(1), hint="numbered")
    places, parts = cast(em, numbered, dtype), cast(em, count, dtype)
    start = number(-1)
    if corners:
        parts = op("Sub", parts, number(1))
        is_single = em.op("Equal", count, em.constant(1), dtype=ir.DataType.BOOL)
        parts = where(em, is_single, number(1), parts, "parts")
    step = op("Div", number(2), parts)
    if not corners:
        start = op("Add", start, op("Div", step, number(2)))
    return op("Add", start, op("Mul", places, step))
