"""Numbers that opsets 9 and 10 lack: infinities, roundings, remainders."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, covers, formal, known_type, looped, one_shape, where
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.arithmetic import bounded
from onnx_kvtool.rewrite.lowering.early.again import (
    added_where,
    again,
    as_attribute,
    replaced_where,
)
from onnx_kvtool.symbolic.dimensions import dims_of

# Round, Equal, Clip with inputs, BitShift and Gemm without C, of opset 11, for opset 10.


_D = ir.DataType


def lower_round_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Round down, and up by one where more than a half is missing, or a half to an even number.

    What is no number and what is infinite stays, as no comparison with it holds. A zero has the
    sign of the number.
    """
    x = view.required("X")
    dtype = known_type(x)
    result = rounded(em, x, dtype)
    is_some = em.op("Greater", em.op("Abs", result), 0.0)
    nothing = em.op("Mul", x, 0.0, hint="nothing")
    return where(em, is_some, result, nothing)


def rounded(em: Emitter, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return floats rounded to the nearest integer, halves to the even one; never -0."""
    op = em.op
    down = op("Floor", x)
    above = op("Sub", x, down)
    halved = op("Mul", down, 0.5)
    odd = op("Sub", down, op("Mul", op("Floor", halved), 2.0))  # 0 or 1
    # A half and no less; an odd number below it is left for the even one above.
    is_half = op("Not", op("Less", above, 0.5))
    to_even = op("And", is_half, op("Greater", odd, 0.5))
    up = op("Or", op("Greater", above, 0.5), to_even, hint="is_up")
    return op("Add", down, cast(em, up, dtype))


def lower_equal_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Return True where neither number is less; nothing equals what is no number.

    Refuses types that have no order.
    """
    a, b = view.operands("A", "B")
    dtype = known_type(a)
    if not (dtype in FLOAT_TYPES or dtype.is_integer()):
        raise Refusal(
            "element-type",
            f"Equal of {dtype.name} cannot be lowered below opset 11",
        )
    orders = (em.op(op_type, a, b) for op_type in ("Less", "Greater"))
    differs = em.op("Or", *orders, hint="differs")
    if dtype in FLOAT_TYPES:
        for operand in (a, b):
            is_none = em.op("IsNaN", operand)
            differs = em.op("Or", differs, is_none, hint="differs")
    return em.op("Not", differs, hint="equal")


def lower_clip_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Write the bounds as attributes; what these do not hold, or is not constant, by Max and Min.

    Of float64 the bounds are compared: onnxruntime has no Clip of it.

    A bound that is left out is the largest number of the type; that of the attribute is of float32.
    """
    result = view.required("input")
    dtype = known_type(result)
    if dtype not in (_D.FLOAT, _D.FLOAT16, _D.DOUBLE):
        raise Refusal("element-type", f"Clip of {dtype.name} needs opset 11")
    if dtype == _D.DOUBLE:
        return bounded(em, result, view.input("min"), view.input("max"))
    largest = np.finfo(dtype.numpy()).max
    bounds = {
        name: view.input(name) or em.constant(np.array(limit, dtype.numpy()), "largest")
        for name, limit in (("min", -largest), ("max", largest))
    }
    known = {name: as_attribute(value) for name, value in bounds.items()}
    limits = {name: number for name, number in known.items() if number is not None}
    if len(limits) == 2:
        return em.op("Clip", result, attributes=limits)
    for name, op_type in (("min", "Max"), ("max", "Min")):
        result = em.op(op_type, result, bounds[name], hint="clipped")
    return result


def lower_bit_shift_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Multiply with a power of two, or divide by it.

    In int64 (narrower types keep its low bits); uint64 in itself. Shifted by the width
    of its type or more, a narrower number is 0, so that no larger power is needed.
    """
    x, y = view.operands("X", "Y")
    dtype = known_type(x)
    wide, is_left = dtype if dtype.bitwidth == 64 else _D.INT64, view.string("direction") == "LEFT"
    beyond = 0 if is_left else 1 << dtype.bitwidth  # of which there is none at 64 bits
    powers = [1 << k if k < dtype.bitwidth else beyond for k in range(64)]
    power = em.op("Gather", np.array(powers, wide.numpy()), cast(em, y, _D.INT64))
    op_type = "Mul" if is_left else "Div"
    return cast(em, em.op(op_type, cast(em, x, wide), power), dtype)


def lower_gemm_11(view: Rewritten, em: Emitter) -> Replacement:
    """Add zero where nothing is added."""
    a, b, c = view.required("A"), view.required("B"), view.input("C")
    if c is None:
        c = em.constant(np.zeros((), known_type(a).numpy()), "zero")
    return again(em, view.node, [a, b, c])


# Mod-10, for opset 9.


_INT64 = ir.DataType.INT64
_DOUBLE = ir.DataType.DOUBLE


def lower_mod_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Take the quotient of integers, which Div cuts off, times the divisor from the dividend.

    Without `fmod` the divisor is added where the signs of rest and divisor differ. Of uint64 the
    quotient is that of the half, which int64 holds. Of floats the rest is what is left after the
    divisor times each power of two, from the largest on, was taken away where it is not too large:
    every difference is exact.
    """
    a, b = view.operands("A", "B")
    dtype = known_type(a)
    if dtype in FLOAT_TYPES:
        if not view.integer("fmod"):
            text = "Mod of floats has `fmod=1` before opset 28"
            raise Refusal("changed-meaning", text)
        return _rest_of_floats(em, a, b, dtype)
    if dtype == _D.UINT64:
        rest = _rest_of_uint64(em, cast(em, a, _INT64), cast(em, b, _INT64))
        return cast(em, rest, dtype)
    a, b = cast(em, a, _INT64), cast(em, b, _INT64)
    rest = _rest(em, a, b)
    if not view.integer("fmod"):
        signs = em.op("Mul", em.op("Sign", rest), em.op("Sign", b), hint="signs")
        rest = added_where(em, rest, em.op("Less", signs, 0, hint="signs_differ"), b, "rest")
    return cast(em, rest, dtype)


def _rest(em: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Return the rest of int64 numbers, with the sign of the dividend."""
    return em.op("Sub", a, em.op("Mul", em.op("Div", a, b, hint="quotient"), b), hint="rest")


def _rest_of_uint64(em: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Return the rest of uint64 numbers, all of them given as the int64 numbers of the same bits.

    The rest of a number is that of its half, doubled, plus its last bit, with the divisor taken
    away once more if it is not larger. A divisor with the first bit set is in it once at most.
    """
    op = em.op

    def taken(value: ir.Value, when: ir.Value) -> ir.Value:
        return op("Sub", value, op("Mul", cast(em, when, _INT64), b), hint="rest")

    # A number with the first bit set is 2**63 and what is left without that bit.
    is_large = op("Less", a, [0])
    once = cast(em, is_large, _INT64)
    left = op("Add", a, op("Mul", once, [-(1 << 63)]), hint="left")
    half = op("Div", left, [2])
    last = op("Sub", left, op("Mul", half, [2]), hint="last_bit")
    half = op("Add", half, op("Mul", once, [1 << 62]), hint="half")

    wide = op("Less", b, [0])
    divisor = added_where(em, b, wide, op("Sub", [1], b), "divisor")
    twice = op("Add", op("Mul", _rest(em, half, divisor), [2]), last, hint="doubled")
    not_less = op("Or", op("Less", twice, [0]), op("Not", op("Less", twice, divisor)))
    by_half = taken(twice, not_less)
    at_most_once = taken(a, op("And", is_large, op("Not", op("Less", a, b))))
    return replaced_where(em, by_half, wide, at_most_once)


def _rest_of_floats(em: Emitter, a: ir.Value, b: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return the rest of floats, with the sign of the dividend, of zeros as well.

    Computed in float64, which holds the divisor times any power of two that is needed, or is
    infinite where that is larger than every dividend.
    """
    op = em.op
    info = np.finfo(dtype.numpy())
    # From the smallest divisor to beyond the largest dividend.
    count = int(info.maxexp - info.minexp + info.nmant + 1)
    powers = np.arange(count)[::-1].astype(np.float64)
    thirds = (np.floor((powers + more) / 3) for more in range(3))  # of which none is infinite
    tables = [em.constant(np.exp2(third), "powers") for third in thirds]
    given = [cast(em, value, _DOUBLE) for value in (a, b)]
    dims = dims_of(a), dims_of(b)
    sizes = [op("Abs", value, hint="size") for value in given]
    if not (covers(dims[0], dims[1]) and covers(dims[1], dims[0])):
        given[0] = one_shape(em, given[0], given[1], None)
        given[1] = one_shape(em, given[1], given[0], None)
        sizes = [op("Abs", value, hint="size") for value in given]
    left = _reduced(em, sizes[0], sizes[1], tables, count)
    nothing = op("Mul", given[0], [0])  # of the sign of the dividend, or no number
    signed = op("Mul", left, op("Sign", given[0]))
    rest = where(em, op("Greater", left, [0]), signed, nothing, "rest")
    # What is infinite has no rest, and nothing has one of zero.
    doubtful = op("Div", nothing, given[1])
    return cast(em, where(em, op("IsNaN", doubtful), doubtful, rest), dtype)


def _reduced(
    em: Emitter, dividend: ir.Value, divisor: ir.Value, tables: list[ir.Value], count: int
) -> ir.Value:
    """Return the rest of positive float64 numbers of one shape, by a Loop over powers of two.

    Each of `count` powers is the product of its entries in `tables`, the largest power first.
    """
    state = formal(em, "left", _DOUBLE)

    def take_away(turn: ir.Value, goes: ir.Value) -> list[ir.Value]:
        multiple = divisor
        for table in tables:
            power = em.op("Gather", table, turn, axis=0)
            multiple = em.op("Mul", multiple, power, hint="multiple")
        is_less = em.op("Less", state, multiple)
        rest = em.op("Sub", state, multiple)
        return [goes, where(em, is_less, state, rest, "left")]

    return looped(em, count, [dividend], [state], take_away)[0]
