"""Range-11 and CumSum-11, for opset 10."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.emit import AttributeValue, Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement
from onnx_kvtool.rewrite.lowering.early.again import (
    count_up,
    element_type,
    joined_sizes,
    known_rank,
)

__all__ = ["lower_cum_sum_11", "lower_range_11"]

_D = ir.DataType
_INTEGERS = frozenset({_D.INT16, _D.INT32, _D.INT64})


def lower_range_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Count up to the number of elements, which NonZero does, and take steps.

        n = max(ceil((limit - start) / delta), 0)
        y = start + NonZero(ones of n) * delta

    Integers are counted in int64, where the quotient is rounded up by adding `delta - sign(delta)`;
    of floats the quotient is taken in float64, as runtimes do.
    """
    view = NodeView(node, context.opset_of(node))
    names = ("start", "limit", "delta")
    given = [view.required(name) for name in names]
    dtype = element_type(given[0], "Range", 11)
    wide = _D.INT64 if dtype in _INTEGERS else dtype
    one = em.constant([1], "one")
    start, limit, delta = (
        em.op("Reshape", cast(em, value, wide), one, dtype=wide, hint=name)
        for value, name in zip(given, names, strict=True)
    )
    way = em.op("Sub", limit, start, dtype=wide, hint="way")
    if wide == _D.INT64:
        more = em.op("Sub", delta, em.op("Sign", delta), hint="rounding")
        count = em.op("Div", em.op("Add", way, more), delta, hint="count")
    else:
        double = _D.DOUBLE
        quotient = em.op("Div", cast(em, way, double), cast(em, delta, double), dtype=double)
        count = cast(em, quotient, _D.INT64)  # cut off
        below = em.op("Less", cast(em, count, double), quotient, dtype=_D.BOOL)
        count = em.op("Add", count, cast(em, below, _D.INT64), hint="count")
    zero = em.constant([0], "zero")
    is_none = em.op("Less", count, zero, dtype=_D.BOOL)
    count = em.op("Where", is_none, zero, count, hint="count")
    steps = em.op("Mul", cast(em, count_up(em, count), wide), delta, dtype=wide)
    return Replacement((cast(em, em.op("Add", start, steps, dtype=wide), dtype),))


def lower_cum_sum_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Add up slice after slice along the axis, in a Scan.

    Refuses an axis that is known at run time only, and an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data, known = view.required("x"), context.folder.integers(view.required("axis"))
    if known is None or known.size != 1:
        raise Refusal(
            "dynamic-input",
            "CumSum cannot be written before opset 11 where `axis` is not constant",
            lowest_opset=11,
        )
    dims = known_rank(data, "CumSum", 11)
    dtype = element_type(data, "CumSum", 11)
    axis = counted_axis(int(known.ravel()[0]), len(dims))
    order = [[d] for d in range(len(dims)) if d != axis]
    others = joined_sizes(em, data, dims, order) if order else em.constant([], "sizes")
    zero = ir.Tensor(np.zeros(1, dtype.numpy()))
    start = em.op("ConstantOfShape", others, attributes={"value": zero}, dtype=dtype)
    state, part = _body_input(em, "sum", dtype), _body_input(em, "slice", dtype)
    exclusive = view.integer("exclusive") != 0

    def build() -> list[ir.Value]:
        added = em.op("Add", state, part, dtype=dtype, hint="sum")
        given = state if exclusive else added
        return [added, em.op("Identity", given, dtype=dtype, hint="given")]

    direction = int(view.integer("reverse") != 0)
    attributes: dict[str, AttributeValue] = {
        "body": em.nested(build, [state, part], hint="adding"),
        "num_scan_inputs": 1,
        "scan_input_axes": [axis],
        "scan_output_axes": [axis],
        "scan_input_directions": [direction],
        "scan_output_directions": [direction],
    }
    _, result = em.multi("Scan", start, data, attributes=attributes, dtypes=[dtype, dtype])
    return Replacement((result,))


def _body_input(em: Emitter, name: str, dtype: ir.DataType) -> ir.Value:
    fresh = em.scope.names.fresh(f"{em.prefix}/{name}")
    return ir.Value(name=fresh, type=ir.TensorType(dtype))
