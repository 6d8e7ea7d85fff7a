"""BitwiseAnd, BitwiseOr, BitwiseXor and BitwiseNot of opset 18, for opsets below 18."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_bitwise_18"]

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64
_HALF = 32
_LOGIC = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor"}


def lower_bitwise_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Work on the bits one by one, in int64.

    Not is -1 - x. For the others each operand gets an axis of its bits, the sign bit last:

    bits = Mod(magnitude / [1, 2, 4, ...], 2), where magnitude is x without its sign bit
    result = sum(logic(bits of A, bits of B) * [1, 2, 4, ..., -2 ** (width - 1)])

    uint64 passes through int64 by Casts that keep all bits (Cast: fixed point to fixed point).
    The result takes `width` times the memory of the operands for a moment.
    """
    names = [f.name for f in NodeView(node, context.opset_of(node)).facts.inputs]
    view = NodeView(node, context.opset_of(node))
    values = [view.required(name) for name in names]
    dtype = values[0].dtype
    if dtype is None:
        raise Refusal("unknown-element-type", f"the type of `{values[0].name}` is unknown")
    wide = [cast(em, value, _INT64) for value in values]
    if node.op_type == "BitwiseNot":
        result = em.op("Sub", em.constant(-1, "all_bits"), wide[0])
    else:
        result = _by_bits(em, _LOGIC[node.op_type], wide, values, _width(dtype))
    return Replacement((cast(em, result, dtype),))


def _width(dtype: ir.DataType) -> int:
    """Return the number of bits that hold every value of `dtype` in int64."""
    bits = int(np.dtype(dtype.numpy()).itemsize) * 8
    return bits if dtype.is_signed() or bits == 64 else bits + 1


def _by_bits(
    em: Emitter, logic: str, wide: list[ir.Value], values: list[ir.Value], width: int
) -> ir.Value:
    powers = em.constant(2 ** np.arange(width - 1, dtype=np.int64), "powers")
    bits = [_bits(em, x, value, powers, width) for x, value in zip(wide, values, strict=True)]
    chosen = em.op(logic, *bits, dtype=_BOOL)  # (..., width)
    numbers = em.op("Cast", chosen, attributes={"to": _INT64.value})
    places = [2**k for k in range(min(width - 1, _HALF))]
    if width <= _HALF:
        return _weighted(em, numbers, [*places, -(2 ** (width - 1))])
    # Two sums, because the ReduceSum of int64 in onnxruntime is exact up to 2 ** 53 only.
    rest = [2**k for k in range(width - 1 - _HALF)] + [-(2 ** (width - 1 - _HALF))]
    low = _weighted(em, numbers, places + [0] * len(rest))
    high = _weighted(em, numbers, [0] * len(places) + rest)
    return em.op("Add", low, em.op("Mul", high, em.constant(2**_HALF, "half")))


def _weighted(em: Emitter, bits: ir.Value, places: list[int]) -> ir.Value:
    """Return the sum over the last axis of each bit times its place."""
    weighted = em.op("Mul", bits, em.constant(np.array(places, np.int64), "places"))
    return reduce(em, "ReduceSum", weighted, [-1], keepdims=False)


def _bits(em: Emitter, x: ir.Value, value: ir.Value, powers: ir.Value, width: int) -> ir.Value:
    """Return the bits of `x` along a new last axis, lowest first: (..., width), bool."""
    dims = dims_of(value)
    if dims is None:
        raise Refusal("unknown-rank", f"the rank of `{value.name}` is unknown")
    column = unsqueeze(em, x, [len(dims)])
    negative = em.op("Less", column, em.constant(0, "zero"), dtype=_BOOL)
    low = em.constant(-(2 ** (width - 1)), "sign_bit")
    magnitude = em.op("Where", negative, em.op("Sub", column, low), column)
    shifted = em.op("Div", magnitude, powers)
    bit = em.op("Mod", shifted, em.constant(2, "two"))
    low_bits = em.op("Cast", bit, attributes={"to": _BOOL.value}, dtype=_BOOL)
    return em.op("Concat", low_bits, negative, attributes={"axis": -1}, dtype=_BOOL)
