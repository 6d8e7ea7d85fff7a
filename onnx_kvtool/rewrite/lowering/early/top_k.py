"""TopK-11 for opset 10, and TopK-10 for opset 9."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import (
    again,
    count_up,
    element_type,
    known_rank,
    product,
)
from onnx_kvtool.rewrite.lowering.early.indexing import gathered_elements
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_top_k_10", "lower_top_k_11"]

_D = ir.DataType


def lower_top_k_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Negate what has to come in ascending order; widen integers that float64 holds.

    Those of 64 bits are sorted by their halves, as TopK keeps the order of what is equal.

    Refuses these of an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data, count = view.required("X"), view.required("K")
    dtype = element_type(data, "TopK", 11)
    is_float = dtype in FLOAT_TYPES
    axis, turned = view.integer("axis"), view.integer("largest") == 0
    if axis < 0:
        axis = counted_axis(axis, len(known_rank(data, "TopK with a negative axis", 11)))
    if not is_float and dtype.bitwidth == 64:
        return Replacement(_by_halves(em, data, count, axis, turned))
    wide = dtype if is_float else _D.DOUBLE if dtype.bitwidth == 32 else _D.FLOAT
    operand = _signed(em, cast(em, data, wide), turned)
    values, places = _top(em, operand, count, axis)
    return Replacement((cast(em, _signed(em, values, turned), dtype), places))


def _by_halves(
    em: Emitter, data: ir.Value, count: ir.Value, axis: int, turned: bool
) -> tuple[ir.Value, ir.Value]:
    """Sort by the lower halves, and what comes of that by the upper ones, both in float64."""
    dims = known_rank(data, "TopK of 64-bit integers", 11)
    base = em.constant(1 << 16, "base")

    def cut(number: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the quotient by the base, rounded down, and the rest."""
        rest = em.op("Mod", number, base, hint="rest")
        return em.op("Div", em.op("Sub", number, rest), base, hint="quotient"), rest

    quotient, first = cut(cast(em, data, _D.INT64))
    upper, second = cut(quotient)
    lower = em.op("Add", em.op("Mul", second, base), first, hint="lower")
    if data.dtype == _D.UINT64:  # the upper half is cast to one with a sign
        quotient, rest = cut(upper)
        positive = em.op("Mod", quotient, base, hint="positive")
        upper = em.op("Add", em.op("Mul", positive, base), rest, hint="upper")
    lower, upper = (_signed(em, cast(em, half, _D.DOUBLE), turned) for half in (lower, upper))
    _, order = _top(em, lower, product(em, data, dims, [axis]), axis)
    _, chosen = _top(em, gathered_elements(em, upper, dims, order, dims, axis), count, axis)
    cut_dims = (*dims[:axis], None, *dims[axis + 1 :])
    places = gathered_elements(em, order, dims, chosen, cut_dims, axis)
    return gathered_elements(em, data, dims, places, cut_dims, axis), places


def _signed(em: Emitter, value: ir.Value, turned: bool) -> ir.Value:
    return em.op("Neg", value, dtype=value.dtype or _D.UNDEFINED) if turned else value


def _top(em: Emitter, value: ir.Value, count: ir.Value, axis: int) -> tuple[ir.Value, ir.Value]:
    dtypes = [value.dtype or _D.UNDEFINED, _D.INT64]
    values, places = em.multi("TopK", value, count, attributes={"axis": axis}, dtypes=dtypes)
    return values, places


def lower_top_k_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write a constant number as an attribute; take the first of all elements for another one.

    Version 1 takes no 0, which is none of all.

    Refuses a number that is known at run time only where the size of the axis is not known.
    """
    view = NodeView(node, context.opset_of(node))
    data, known = view.required("X"), context.folder.integers(view.required("K"))
    axis = view.integer("axis")
    if axis < 0:
        axis = counted_axis(axis, len(known_rank(data, "TopK with a negative axis", 10)))
    if known is not None and known.size == 1 and known.item() > 0:
        attributes = {"axis": axis, "k": known.item()}
        return again(em, node, inputs=[data], attributes=attributes)
    dims = dims_of(data)
    size = None if dims is None else dims[axis]
    if not isinstance(size, int) or not size:
        raise Refusal(
            "dynamic-input",
            "TopK cannot be written before opset 10 where neither `K` is a constant above 0 nor "
            "the size of the axis known and above 0",
            help="fix the sizes of the input with `--dim`",
            lowest_opset=10,
        )
    whole = again(em, node, inputs=[data], attributes={"axis": axis, "k": size})
    first = count_up(em, em.op("Reshape", view.required("K"), em.constant([1], "one")))

    def cut(part: ir.Value) -> ir.Value:
        dtype = part.dtype or _D.UNDEFINED
        return em.op("Gather", part, first, attributes={"axis": axis}, dtype=dtype, hint="first")

    return Replacement(tuple(part and cut(part) for part in whole.outputs))
