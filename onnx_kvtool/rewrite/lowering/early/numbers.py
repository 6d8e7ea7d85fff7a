"""Numbers that opsets 9 and 10 lack: infinities, roundings, remainders."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    covers,
    formal,
    known_type,
    looped,
    one_shape,
    terms,
)
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
    x = Term(em, view.required("X"))
    result = rounded(x, known_type(x.value))
    return (abs(result) > 0.0).where(result, x * 0.0).value


def rounded(x: Term, dtype: ir.DataType) -> Term:
    """Return floats rounded to the nearest integer, halves to the even one; never -0."""
    down = x.op("Floor")
    above = x - down
    odd = down - (down * 0.5).op("Floor") * 2.0  # 0 or 1
    # A half and no less; an odd number below it is left for the even one above.
    to_even = ~(above < 0.5) & (odd > 0.5)
    return down + ((above > 0.5) | to_even).cast(dtype)


def lower_equal_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Return True where neither number is less; nothing equals what is no number.

    Refuses types that have no order.
    """
    a, b = terms(em, *view.operands("A", "B"))
    dtype = known_type(a.value)
    if not (dtype in FLOAT_TYPES or dtype.is_integer()):
        text = f"Equal of {dtype.name} cannot be lowered below opset 11"
        raise Refusal("element-type", text)
    differs = (a < b) | (a > b)
    if dtype in FLOAT_TYPES:
        for operand in (a, b):
            differs |= operand.op("IsNaN")
    return (~differs).value


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
        result = em.op(op_type, result, bounds[name])
    return result


def lower_bit_shift_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Multiply with a power of two, or divide by it.

    In int64 (narrower types keep its low bits); uint64 in itself. Shifted by the width
    of its type or more, a narrower number is 0, so that no larger power is needed.
    """
    x, y = view.operands("X", "Y")
    dtype = known_type(x)
    wide, is_left = dtype if dtype.bitwidth == 64 else _D.INT64, view.string("direction") == "LEFT"
    beyond = 0 if is_left else 1 << dtype.bitwidth  # (none at 64 bits)
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
    operands = view.operands("A", "B")
    dtype = known_type(operands[0])
    if dtype in FLOAT_TYPES:
        if not view.integer("fmod"):
            text = "Mod of floats has `fmod=1` before opset 28"
            raise Refusal("changed-meaning", text)
        return _rest_of_floats(em, operands[0], operands[1], dtype)
    a, b = (x.cast(_INT64) for x in terms(em, *operands))
    if dtype == _D.UINT64:
        return _rest_of_uint64(a, b).cast(dtype).value
    rest = _rest(a, b)
    if not view.integer("fmod"):
        signs = rest.op("Sign") * b.op("Sign")
        rest += (signs < 0).cast(_INT64) * b
    return rest.cast(dtype).value


def _rest(a: Term, b: Term) -> Term:
    """Return the rest of int64 numbers, with the sign of the dividend."""
    return a - a / b * b


def _rest_of_uint64(a: Term, b: Term) -> Term:
    """Return the rest of uint64 numbers, all of them given as the int64 numbers of the same bits.

    The rest of a number is that of its half, doubled, plus its last bit, with the divisor taken
    away once more if it is not larger. A divisor with the first bit set is in it once at most.
    """

    def taken(value: Term, when: Term) -> Term:
        return value - when.cast(_INT64) * b

    # A number with the first bit set is 2**63 and what is left without that bit.
    is_large = a < [0]
    once = is_large.cast(_INT64)
    left = a + once * [-(1 << 63)]
    half = left / [2]
    last = left - half * [2]
    half += once * [1 << 62]

    wide = b < [0]
    divisor = added_where(b, wide, [1] - b)
    twice = _rest(half, divisor) * [2] + last
    by_half = taken(twice, (twice < [0]) | ~(twice < divisor))
    at_most_once = taken(a, is_large & ~(a < b))
    return replaced_where(by_half, wide, at_most_once)


def _rest_of_floats(em: Emitter, a: ir.Value, b: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return the rest of floats, with the sign of the dividend, of zeros as well.

    Computed in float64, which holds the divisor times any power of two that is needed, or is
    infinite where that is larger than every dividend.
    """
    info = np.finfo(dtype.numpy())
    # From the smallest divisor to beyond the largest dividend.
    count = int(info.maxexp - info.minexp + info.nmant + 1)
    powers = np.arange(count)[::-1].astype(np.float64)
    thirds = (np.floor((powers + more) / 3) for more in range(3))  # none is infinite
    tables = [em.constant(np.exp2(third), "powers") for third in thirds]
    dims = dims_of(a), dims_of(b)
    a, b = (cast(em, value, _DOUBLE) for value in (a, b))
    if not (covers(dims[0], dims[1]) and covers(dims[1], dims[0])):
        a = one_shape(em, a, b, None)
        b = one_shape(em, b, a, None)
    dividend, divisor = terms(em, a, b)
    start, step = abs(dividend), abs(divisor)
    held = Term(em, formal(em, "left", _DOUBLE))

    def take_away(turn: ir.Value, goes: ir.Value) -> list[ir.Value]:
        multiple = step  # by a power of two, the largest first
        for table in tables:
            multiple *= em.op("Gather", table, turn, axis=0)
        return [goes, (held < multiple).where(held, held - multiple).value]

    left = Term(em, looped(em, count, [start.value], [held.value], take_away)[0])
    nothing = dividend * [0]  # of the sign of the dividend, or no number
    signed = left * dividend.op("Sign")
    rest = (left > [0]).where(signed, nothing)
    # What is infinite has no rest, and nothing has one of zero.
    doubtful = nothing / divisor
    return doubtful.op("IsNaN").where(doubtful, rest).cast(dtype).value
