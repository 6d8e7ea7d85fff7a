"""Round, Equal, Clip with inputs, BitShift and Gemm without C, of opset 11, for opset 10."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import again, as_attribute, element_type
from onnx_kvtool.rewrite.lowering.max_min import bounded

__all__ = [
    "lower_bit_shift_11",
    "lower_clip_11",
    "lower_equal_11",
    "lower_gemm_11",
    "lower_round_11",
    "rounded",
]

_D = ir.DataType
_BOOL = _D.BOOL


def lower_round_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Round down, and up by one where more than a half is missing, or a half to an even number.

    What is no number and what is infinite stays, as no comparison with it holds. A zero has the
    sign of the number.
    """
    view = NodeView(node, context.opset_of(node))
    x = view.required("X")
    dtype = element_type(x, "Round", 11)
    result, zero = rounded(em, x, dtype), em.constant(np.zeros((), dtype.numpy()), "zero")
    is_some = em.op("Greater", em.op("Abs", result, dtype=dtype), zero, dtype=_BOOL)
    nothing = em.op("Mul", x, zero, dtype=dtype, hint="nothing")
    return Replacement((where(em, is_some, result, nothing),))


def rounded(em: Emitter, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return floats rounded to the nearest integer, halves to the even one; never -0."""

    def op(op_type: str, *inputs: ir.Value) -> ir.Value:
        return em.op(op_type, *inputs, dtype=dtype)

    def is_greater(a: ir.Value, b: ir.Value) -> ir.Value:
        return em.op("Greater", a, b, dtype=_BOOL)

    half, two = (em.constant(np.array(n, dtype.numpy()), "number") for n in (0.5, 2.0))
    down = op("Floor", x)
    above = op("Sub", x, down)
    halved = op("Mul", down, half)
    odd = op("Sub", down, op("Mul", op("Floor", halved), two))  # 0 or 1
    # A half and no less; an odd number below it is left for the even one above.
    is_half = em.op("Not", em.op("Less", above, half, dtype=_BOOL), dtype=_BOOL)
    to_even = em.op("And", is_half, is_greater(odd, half), dtype=_BOOL)
    up = em.op("Or", is_greater(above, half), to_even, dtype=_BOOL, hint="is_up")
    more = em.op("Cast", up, attributes={"to": dtype.value}, dtype=dtype)
    return op("Add", down, more)


def lower_equal_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Say equal of numbers of which none is less; nothing equals what is no number.

    Refuses types that have no order.
    """
    view = NodeView(node, context.opset_of(node))
    a, b = view.required("A"), view.required("B")
    dtype = element_type(a, "Equal", 11)
    if not (dtype in FLOAT_TYPES or dtype.is_integer()):
        raise Refusal(
            "element-type",
            f"Equal of {dtype.name} cannot be written before opset 11",
            lowest_opset=11,
        )
    orders = (em.op(op_type, a, b, dtype=_BOOL) for op_type in ("Less", "Greater"))
    differs = em.op("Or", *orders, dtype=_BOOL, hint="differs")
    if dtype in FLOAT_TYPES:
        for operand in (a, b):
            is_none = em.op("IsNaN", operand, dtype=_BOOL)
            differs = em.op("Or", differs, is_none, dtype=_BOOL, hint="differs")
    return Replacement((em.op("Not", differs, dtype=_BOOL, hint="equal"),))


def lower_clip_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write the bounds as attributes; what these do not hold, or is not constant, by Max and Min.

    Of float64, of which onnxruntime has no Clip, the bounds are compared.

    A bound that is left out is the largest number of the type; that of the attribute is of float32.
    """
    view = NodeView(node, context.opset_of(node))
    result = view.required("input")
    dtype = element_type(result, "Clip", 11)
    if dtype not in (_D.FLOAT, _D.FLOAT16, _D.DOUBLE):
        raise Refusal("element-type", f"Clip of {dtype.name} needs opset 11", lowest_opset=11)
    if dtype == _D.DOUBLE:
        return Replacement((bounded(em, result, view.input("min"), view.input("max")),))
    largest = np.finfo(dtype.numpy()).max
    bounds = {
        name: view.input(name) or em.constant(np.array(limit, dtype.numpy()), "largest")
        for name, limit in (("min", -largest), ("max", largest))
    }
    known = {name: as_attribute(value) for name, value in bounds.items()}
    limits = {name: number for name, number in known.items() if number is not None}
    if len(limits) == 2:
        return Replacement((em.op("Clip", result, attributes=limits, dtype=dtype),))
    for name, op_type in (("min", "Max"), ("max", "Min")):
        result = em.op(op_type, result, bounds[name], dtype=dtype, hint="clipped")
    return Replacement((result,))


def lower_bit_shift_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Multiply with a power of two, or divide by it.

    In int64, of which the narrower types keep the low bits; uint64 in itself.
    """
    view = NodeView(node, context.opset_of(node))
    x, y = view.required("X"), view.required("Y")
    dtype = element_type(x, "BitShift", 11)
    wide = dtype if dtype.bitwidth == 64 else _D.INT64
    powers = (np.uint64(1) << np.arange(64, dtype=np.uint64)).astype(wide.numpy())
    power = em.op("Gather", em.constant(powers, "powers"), cast(em, y, _D.INT64), dtype=wide)
    op_type = "Mul" if view.string("direction") == "LEFT" else "Div"
    return Replacement((cast(em, em.op(op_type, cast(em, x, wide), power, dtype=wide), dtype),))


def lower_gemm_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Add zero where nothing is added."""
    view = NodeView(node, context.opset_of(node))
    a, b, c = view.required("A"), view.required("B"), view.input("C")
    if c is None:
        c = em.constant(np.zeros((), element_type(a, "Gemm", 11).numpy()), "zero")
    return again(em, node, inputs=[a, b, c])
