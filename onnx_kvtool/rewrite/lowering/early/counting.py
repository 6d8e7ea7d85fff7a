"""Range-11 and CumSum-11, for opset 10."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import (
    count_up,
    element_type,
    joined_sizes,
    known_rank,
)
from onnx_kvtool.rewrite.lowering.run_time_axes import switch
from onnx_kvtool.symbolic.dimensions import Dim

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

    Along an axis that is known at run time only it is done for each axis, and the sum that is
    meant is cut out.

    Refuses an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data, given = view.required("x"), view.required("axis")
    known, dims = context.folder.integers(given), known_rank(data, "CumSum", 11)
    exclusive, reverse = view.integer("exclusive") != 0, view.integer("reverse") != 0

    def summed(value: ir.Value, axis: int) -> ir.Value:
        return _summed(em, value, dims, axis, exclusive, reverse)

    if (known is not None and known.size == 1) or len(dims) == 1:
        axis = 0 if known is None else counted_axis(int(known.ravel()[0]), len(dims))
        return Replacement((summed(data, axis),))
    marks, result = _marks(em, given, len(dims)), data
    for axis in range(len(dims)):
        result = switch(em, marks, axis, result, functools.partial(summed, axis=axis))
    return Replacement((result,))


def _marks(em: Emitter, axis: ir.Value, rank: int) -> ir.Value:
    """Return 1 for the axis, which may count from the end, else 0: (rank,), int64."""
    place = em.op("Reshape", cast(em, axis, _D.INT64), em.constant([1]), hint="axis")
    is_negative = em.op("Less", place, em.constant([0]), dtype=_D.BOOL)
    more = em.op("Mul", cast(em, is_negative, _D.INT64), em.constant([rank]))
    counted = em.op("Add", place, more, hint="counted")
    is_meant = em.op("Equal", em.constant(np.arange(rank)), counted, dtype=_D.BOOL)
    return cast(em, is_meant, _D.INT64, hint="marks")


def _summed(
    em: Emitter,
    data: ir.Value,
    dims: tuple[Dim, ...],
    axis: int,
    exclusive: bool,
    reverse: bool,
) -> ir.Value:
    dtype = element_type(data, "CumSum", 11)
    order = [[d] for d in range(len(dims)) if d != axis]
    others = joined_sizes(em, data, dims, order) if order else em.constant([], "sizes")
    # What is added to -0 stays what it is, zeros of both signs as well.
    nothing = np.zeros(1) if exclusive or dtype not in FLOAT_TYPES else np.full(1, -0.0)
    zero = ir.Tensor(nothing.astype(dtype.numpy()))
    start = em.op("ConstantOfShape", others, attributes={"value": zero}, dtype=dtype)
    state, part = _body_input(em, "sum", dtype), _body_input(em, "slice", dtype)

    shape = [dim for d, dim in enumerate(dims) if d != axis]

    def build() -> list[ir.Value]:
        added = em.op("Add", state, part, dtype=dtype, hint="sum")
        given = em.op("Identity", state if exclusive else added, dtype=dtype, hint="given")
        given.shape = ir.Shape(shape)  # which nothing else says where there are no slices
        return [added, given]

    direction = int(reverse)
    attributes: dict[str, AttributeValue] = {
        "body": em.nested(build, [state, part], hint="adding"),
        "num_scan_inputs": 1,
        "scan_input_axes": [axis],
        "scan_output_axes": [axis],
        "scan_input_directions": [direction],
        "scan_output_directions": [direction],
    }
    _, result = em.multi("Scan", start, data, attributes=attributes, dtypes=[dtype, dtype])
    return result


def _body_input(em: Emitter, name: str, dtype: ir.DataType) -> ir.Value:
    fresh = em.scope.names.fresh(f"{em.prefix}/{name}")
    return ir.Value(name=fresh, type=ir.TensorType(dtype))
