"""Operators that compute element by element, and CumProd."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.emit.emitter import Emitter, Operand, Refusal
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    covers,
    formal,
    known_dims,
    known_type,
    one_number,
    one_shape,
    terms,
    unsqueeze,
    where,
)
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.reshape import (
    INTEGERS,
    along_axis,
    never_empty,
    reshape_literally,
)
from onnx_kvtool.symbolic.dimensions import dims_of

# BitCast-26 of integers to others of their width, and of bools, for opsets below 26.


_D = ir.DataType


def lower_bit_cast_26(view: Rewritten, em: Emitter) -> ir.Value:
    """Cast an integer to another of its width, which keeps all bits; a bool is the byte 0 or 1.

    Cast between fixed-point types discards higher bits and reinterprets the rest (Cast-13).

    Refuses floats: no older operator reads or makes the bits of what is not a number. Refuses to
    read integers as bool: the text does not say what bytes above 1 are.
    """
    data, to = view.required("input"), _D(view.integer("to"))
    given = data.dtype
    if given == to:
        return em.op("Identity", data)
    is_byte = given == _D.BOOL and to in (_D.INT8, _D.UINT8)
    name = "an unknown type" if given is None else given.name
    fits = given in INTEGERS and to in INTEGERS and given.bitwidth == to.bitwidth
    if not (is_byte or fits):
        raise Refusal(
            "element-type",
            f"no operator before opset 26 reads the bits of {name} as {to.name}",
        )
    return cast(em, data, to)


# BitShift-28 of signed integers, for opsets below 28.


_BOOL = ir.DataType.BOOL
_INT64 = ir.DataType.INT64
_UINT64 = ir.DataType.UINT64


def lower_bit_shift_28(view: Rewritten, em: Emitter) -> ir.Value:
    """Shift in 64 bits and cast back, which keeps the low bits.

    left: Mul by 2 ** y; the highest power is the lowest number of the type (Cast: fixed point to
    fixed point keeps the low bits); of 64 bits, BitShift of uint64, which holds the bits of each
    right: floor(x / 2 ** y) = (x - Mod(x, 2 ** y)) / 2 ** y, since Mod has the divisor's sign; in
    two steps, because 2 ** 63 is no int64

    A shift by less than 0, or by the width of the type or more, leaves 0 on the left and sign bits
    on the right.
    """
    dtype, left = known_type(view.required("X")), view.string("direction") == "LEFT"
    x, y = (term.cast(_INT64) for term in terms(em, *view.operands("X", "Y")))
    width = dtype.bitwidth
    outside = (y < 0) | ~(y < width)
    amount = outside.op("Where", 0 if left else width, y)
    if not left:
        half = amount / 2
        powers = Term(em, em.constant(2 ** np.arange(width // 2 + 1, dtype=np.int64), "powers"))
        for part in (half, amount - half):
            power = powers.op("Gather", part)
            x = (x - x % power) / power
    elif width < 64:
        places = (1 << np.arange(width)).astype(dtype.numpy()).astype(np.int64)
        x = outside.op("Where", 0, x * em.op("Gather", places, amount))
    else:
        bits = x.cast(_UINT64).op("BitShift", amount.cast(_UINT64), direction="LEFT")
        x = outside.op("Where", 0, bits.cast(_INT64))
    return x.cast(dtype).value


# BitwiseAnd, BitwiseOr, BitwiseXor and BitwiseNot of opset 18, for opsets below 18.


_HALF = 32
_LOGIC = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor"}


def lower_bitwise_18(view: Rewritten, em: Emitter) -> ir.Value:
    """Work on the bits one by one, in int64.

    Not is -1 - x. For the others each operand gets an axis of its bits, the sign bit last:

    bits = Mod(magnitude / [1, 2, 4, ...], 2), where magnitude is x without its sign bit
    result = sum(logic(bits of A, bits of B) * [1, 2, 4, ..., -2 ** (width - 1)])

    uint64 passes through int64 by Casts that keep all bits (Cast: fixed point to fixed point).
    The result takes `width` times the memory of the operands for a moment.
    """
    names = [f.name for f in view.facts.inputs]
    values = [view.required(name) for name in names]
    dtype = known_type(values[0])
    wide = [term.cast(_INT64) for term in terms(em, *values)]
    if view.node.op_type == "BitwiseNot":
        result = -1 - wide[0]
    else:
        # The bits that hold every value in int64.
        width = dtype.bitwidth + (not dtype.is_signed() and dtype.bitwidth < 64)
        places = [len(known_dims(value)) for value in values]
        columns = [x.then(unsqueeze, [place]) for x, place in zip(wide, places, strict=True)]
        result = _by_bits(_LOGIC[view.node.op_type], columns, width)
    return result.cast(dtype).value


def _by_bits(logic: str, columns: list[Term], width: int) -> Term:
    """Return what `logic` makes of the bits of integers, (..., 1) each: (...)."""
    powers = 2 ** np.arange(width - 1, dtype=np.int64)
    one, *more = (_bits(x, powers, width) for x in columns)
    numbers = one.op(logic, *more).cast(_INT64)  # (..., width)
    places = [2**k for k in range(min(width - 1, _HALF))]
    if width <= _HALF:
        return _weighted(numbers, [*places, -(2 ** (width - 1))])
    # Two sums, because the ReduceSum of int64 in onnxruntime is exact up to 2 ** 53 only.
    rest = [2**k for k in range(width - 1 - _HALF)] + [-(2 ** (width - 1 - _HALF))]
    low = _weighted(numbers, places + [0] * len(rest))
    high = _weighted(numbers, [0] * len(places) + rest)
    return low + high * (1 << _HALF)


def _weighted(bits: Term, places: list[int]) -> Term:
    """Return the sum over the last axis of each bit times its place."""
    return (bits * places).reduce("ReduceSum", [-1], keepdims=False)


def _bits(column: Term, powers: np.ndarray, width: int) -> Term:
    """Return the bits of integers (..., 1), lowest first: (..., width), bool."""
    negative = column < 0
    magnitude = negative.op("Where", column - -(2 ** (width - 1)), column)
    digit = magnitude / powers % 2
    return digit.cast(_BOOL).op("Concat", negative, axis=-1)


# Mod-28 of floats with `fmod=0`, for opsets below 28.


def lower_mod_28(view: Rewritten, em: Emitter) -> ir.Value:
    """Turn the truncated remainder, which every opset has, into the floored one.

    r = Mod(A, B, fmod=1), exact, with the sign of A
    where r is not 0 and its sign is not that of B: r + B, rounded as the definition is
    the result is Abs of that * Sign(B), which gives a zero the sign of B

    NaNs compare false throughout and stay. The sign of zero does not come from a Where, because
    that of onnxruntime loses it.
    """
    a, b = terms(em, *view.operands("A", "B"))
    dtype = a.value.dtype
    if dtype is None or not dtype.is_floating_point():
        name = "unknown" if dtype is None else dtype.name
        text = f"the type of `{a.value.name}` is {name}, no float that Mod takes"
        raise Refusal("element-type", text)
    rest = a.op("Mod", b, fmod=1)
    if view.integer("fmod") != 0:
        return rest.value
    crossed = ((rest < 0.0) & (b > 0.0)) | ((rest > 0.0) & (b < 0.0))
    return (abs(crossed.where(rest + b, rest)) * b.op("Sign")).value


# Pow-12 with an exponent of another type, or of integers, for opset 11.


_WIDE_FLOATS = {_D.FLOAT, _D.FLOAT16, _D.DOUBLE}
_EXACT_IN_DOUBLE = INTEGERS - {_D.INT64, _D.UINT64}
_BITS = 6
"""Bits of the largest exponent, 63, of a power that 64 bits hold, but for 0, 1 and -1."""


def lower_pow_12(view: Rewritten, em: Emitter) -> ir.Value:
    """Compute in float64, which Pow takes in every opset, and cast back.

    float64 holds each base and exponent but for 64-bit exponents beyond 2 ** 53, which are rounded
    as C's and numpy's power of a float and an integer round them. The power of two integers is
    rounded to the nearest one before the Cast, so that a library whose power of 3 and 2 is just
    below 9 does not give 8; a power that is no integer, with a negative exponent, is at most 1/2.

    The power of an int64 and a float is that of C and numpy, which widen both to float64; that of
    an int64 and an integer is made of squares, which wrap as int64 does.

    Refuses bfloat16, which the target does not have.
    """
    base, exponent = view.operands("X", "Y")
    dtype, other = base.dtype, exponent.dtype
    if dtype == _D.INT64 and other in INTEGERS:
        powers = _by_squares(Term(em, base), Term(em, exponent).cast(_D.INT64))
        return powers.value
    if (
        dtype not in _WIDE_FLOATS | _EXACT_IN_DOUBLE | {_D.INT64}
        or other not in _WIDE_FLOATS | INTEGERS
        or dtype is None
    ):
        name = "unknown" if dtype is None else dtype.name
        raise Refusal(
            "element-type",
            f"Pow of {name} and {'unknown' if other is None else other.name} cannot be computed "
            f"exactly at opset {em.opset}",
        )
    wide = [cast(em, value, _D.DOUBLE) for value in (base, exponent)]
    power = em.op("Pow", *wide)
    if dtype in _EXACT_IN_DOUBLE and other not in _WIDE_FLOATS:
        power = em.op("Round", power)
    return cast(em, power, dtype)


def _by_squares(base: Term, exponent: Term) -> Term:
    """Return integer powers, all of int64.

        power = product of base ** (2 ** i) for each bit i that the exponent has

    An exponent above 63 counts as 62 or 63: only the powers of 0, 1 and -1 are held, which tell odd
    from even. One below 0 gives what is left of a fraction, 0, for a base other than 1 and -1.
    """
    odd = exponent % 2
    most = odd + 62
    rest = (most < exponent).where(most, exponent)
    is_negative = exponent < 0
    rest = is_negative.where(odd, rest)
    is_unit = abs(base).op("Equal", 1)
    power, square = (~is_negative | is_unit).cast(_D.INT64), base
    for bit in range(_BITS):
        half = rest / 2
        digit = rest - half * 2
        # The square where the bit is set, else 1; a Where would need operands of one shape.
        power, rest = power * (digit * (square - 1) + 1), half
        if bit + 1 < _BITS:
            square *= square
    return power


# Max, Min, Clip and Relu of types that older opsets do not take: compared and chosen.


def lower_max_min_12(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Compare and choose, operand by operand: Where(Less(a, b), b, a), both spread to one shape.

    Only for int64 and uint64, which no type holds that Max takes at opset 11; narrower integers
    take the way through a float that holds them.
    """
    values = [value for value in view.node.inputs if value is not None]
    dtype = values[0].dtype
    if dtype not in (ir.DataType.INT64, ir.DataType.UINT64):
        return None
    result, dims = values[0], dims_of(values[0])
    compare = "Less" if view.node.op_type == "Max" else "Greater"
    for value in values[1:]:
        beaten = em.op(compare, result, value)
        others = dims_of(value)
        one, other = one_shape(em, value, result, dims), one_shape(em, result, value, others)
        result = where(em, beaten, one, other)
        dims = dims if covers(dims, others) else others if covers(others, dims) else None
    if len(values) == 1:
        result = em.op("Identity", result)
    return result


def lower_relu_14(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Choose zero where the input is less: Where(Less(x, 0), 0, x).

    Only for int64, which no type holds that Relu takes below opset 14.
    """
    x = view.required("X")
    if x.dtype != ir.DataType.INT64:
        return None
    return where(em, em.op("Less", x, 0), 0, x)


def lower_clip_12(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Choose the bound where the input is beyond it, first the lower one.

    Only for integers, and for float64: onnxruntime has no Clip of it below opset 12.
    """
    x, dtype = view.required("input"), view.required("input").dtype
    if dtype is None or not (dtype.is_integer() or dtype == _D.DOUBLE):
        return None
    return bounded(em, x, view.input("min"), view.input("max"))


def bounded(em: Emitter, x: ir.Value, low: ir.Value | None, high: ir.Value | None) -> ir.Value:
    """Return integers or floats within bounds of one element; what is no number stays."""
    result = x
    for given, compare in ((low, "Less"), (high, "Greater")):
        if given is not None:
            bound = one_number(em, given, x)
            is_beyond = em.op(compare, result, bound)
            result = where(em, is_beyond, bound, result, "bounded")
    return em.op("Identity", x) if result is x else result


# Equal-19 of strings, for opsets 11 to 18.


_TO_THE_END = (1 << 31) - 1


def lower_equal_19(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Number the strings of both operands, equal ones alike, and compare the numbers.

    Unique numbers them, which knows strings since opset 11. Nothing is done for other types.
    """
    op = em.op
    operands = view.operands("A", "B")
    if any(value.dtype != _D.STRING for value in operands):
        return None
    both = op("Concat", *(op("Reshape", value, [-1]) for value in operands), axis=0)
    unique = em.multi("Unique", both, count=3)
    unique[1].name = ""
    first = op("Reshape", op("Size", operands[0]), [1])
    numbers = []
    begins: tuple[Operand, ...] = ([0], first)
    ends: tuple[Operand, ...] = (first, [_TO_THE_END])
    for value, begin, end in zip(operands, begins, ends, strict=True):
        part = op("Slice", unique[2], begin, end)
        empty = not never_empty(value)
        numbers.append(reshape_literally(em, part, op("Shape", value), empty=empty))
    return op("Equal", *numbers)


# CumProd-26, for opsets below 26.


def lower_cum_prod_26(view: Rewritten, em: Emitter) -> ir.Value:
    """Multiply along the axis with a Scan, in the order of CumProd.

    An axis that is known at run time only takes one If per axis of the data.

    Refuses an unknown rank.
    """
    return accumulated_along(view, em, "Mul", np.ones(1))


def accumulated_along(
    view: Rewritten, em: Emitter, op_type: str, start: NDArray[np.float64]
) -> ir.Value:
    """Return the sums or products of a CumSum or CumProd, from a number of one element."""
    data, axis = view.operands("x", "axis")
    dims, dtype = known_dims(data), known_type(data)
    first = ir.Tensor(start.astype(dtype.numpy()))
    directions = [int(view.integer("reverse") != 0)]  # of the result as well

    def along(value: ir.Value, place: int) -> ir.Value:
        others = [a for a in range(len(dims)) if a != place]
        shape = em.op("Gather", em.op("Shape", value), others)  # (rank - 1,)
        begin = em.op("ConstantOfShape", shape, value=first)
        state, part = (formal(em, name, dtype, [None] * len(others)) for name in ("total", "slice"))

        def step() -> list[ir.Value]:
            following = em.op(op_type, state, part, hint="total")
            given = em.op("Identity", state if view.integer("exclusive") else following)
            # Nothing else says it where there are no slices.
            given.shape = ir.Shape([dims[a] for a in others])
            return [following, given]

        _, result = em.multi(
            "Scan",
            begin,
            value,
            body=em.nested(step, [state, part], hint="body"),
            num_scan_inputs=1,
            scan_input_axes=[place],
            scan_input_directions=directions,
            scan_output_axes=[place],
            scan_output_directions=directions,
            count=2,
        )
        result.shape = value.shape and ir.Shape(value.shape)
        return result

    return along_axis(view, em, data, axis, along)
