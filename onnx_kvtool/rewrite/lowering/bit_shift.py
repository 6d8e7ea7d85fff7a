"""BitShift-28 of signed integers, for opsets below 28."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_bit_shift_28"]

_BOOL, _INT64, _UINT64 = ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.UINT64


def lower_bit_shift_28(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Shift in 64 bits and cast back, which keeps the low bits.

    left: BitShift of uint64, which holds the bits of every signed number
    (Cast: fixed point to fixed point keeps the low bits)
    right: floor(x / 2 ** y) = (x - Mod(x, 2 ** y)) / 2 ** y, since Mod has the divisor's sign; in
    two steps, because 2 ** 63 is no int64

    A shift by less than 0, or by the width of the type or more, leaves 0 on the left and sign bits
    on the right.
    """
    view = NodeView(node, context.opset_of(node))
    dtype, left = view.required("X").dtype, view.string("direction") == "LEFT"
    if dtype is None:
        raise Refusal("unknown-element-type", f"the type of `{view.required('X').name}` is unknown")
    x, y = (cast(em, view.required(name), _INT64) for name in ("X", "Y"))
    limit = em.constant(int(np.dtype(dtype.numpy()).itemsize) * 8, "width")
    negative = em.op("Less", y, em.constant(0, "zero"), dtype=_BOOL)
    inside = em.op("Less", y, limit, dtype=_BOOL)
    outside = em.op("Or", negative, em.op("Not", inside, dtype=_BOOL), dtype=_BOOL)
    shift = _left if left else _right
    return Replacement((cast(em, shift(em, x, y, outside, limit), dtype),))


def _left(em: Emitter, x: ir.Value, y: ir.Value, outside: ir.Value, limit: ir.Value) -> ir.Value:
    zero = em.constant(0, "zero")
    amount = cast(em, em.op("Where", outside, zero, y, hint="amount"), _UINT64)
    bits = cast(em, x, _UINT64)
    shifted = em.op("BitShift", bits, amount, attributes={"direction": "LEFT"}, dtype=_UINT64)
    return em.op("Where", outside, zero, cast(em, shifted, _INT64))


def _right(em: Emitter, x: ir.Value, y: ir.Value, outside: ir.Value, limit: ir.Value) -> ir.Value:
    amount = em.op("Where", outside, limit, y, hint="amount")
    half = em.op("Div", amount, em.constant(2, "two"), hint="half")
    powers = em.constant(2 ** np.arange(33, dtype=np.int64), "powers")
    for part in (half, em.op("Sub", amount, half, hint="rest")):
        power = em.op("Gather", powers, part, hint="power")
        multiple = em.op("Sub", x, em.op("Mod", x, power), hint="multiple")
        x = em.op("Div", multiple, power, hint="shifted")
    return x
