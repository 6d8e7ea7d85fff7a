"""Operators that compute element by element, and CumProd."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import (
    accumulated,
    cast,
    covers,
    known_dims,
    known_type,
    one_number,
    one_shape,
    reduce,
    unsqueeze,
    where,
)
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.reshape import axis_marks, never_empty, reshape_literally, switch
from onnx_kvtool.symbolic.dimensions import dims_of

# BitCast-26 of integers to others of their width, and of bools, for opsets below 26.


_D = ir.DataType
_INTEGERS = {_D.INT8, _D.INT16, _D.INT32, _D.INT64, _D.UINT8, _D.UINT16, _D.UINT32, _D.UINT64}


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
    fits = given in _INTEGERS and to in _INTEGERS and _bits_of(given) == _bits_of(to)
    if not (is_byte or fits):
        name = "an unknown type" if given is None else given.name
        raise Refusal(
            "element-type",
            f"no operator before opset 26 reads the bits of {name} as {to.name}",
        )
    return cast(em, data, to)


def _bits_of(dtype: ir.DataType | None) -> int:
    return 0 if dtype is None else int(np.dtype(dtype.numpy()).itemsize)


# BitShift-28 of signed integers, for opsets below 28.


_BOOL = ir.DataType.BOOL
_INT64 = ir.DataType.INT64
_UINT64 = ir.DataType.UINT64


def lower_bit_shift_28(view: Rewritten, em: Emitter) -> ir.Value:
    """Shift in 64 bits and cast back, which keeps the low bits.

    left: Mul by 2 ** y, the highest of which is the lowest number of the type (Cast: fixed point to
    fixed point keeps the low bits); of 64 bits, BitShift of uint64, which holds the bits of each
    right: floor(x / 2 ** y) = (x - Mod(x, 2 ** y)) / 2 ** y, since Mod has the divisor's sign; in
    two steps, because 2 ** 63 is no int64

    A shift by less than 0, or by the width of the type or more, leaves 0 on the left and sign bits
    on the right.
    """
    dtype, left = known_type(view.required("X")), view.string("direction") == "LEFT"
    x, y = (cast(em, view.required(name), _INT64) for name in ("X", "Y"))
    width = dtype.bitwidth
    negative = em.op("Less", y, 0)
    inside = em.op("Less", y, width)
    outside = em.op("Or", negative, em.op("Not", inside))
    if left:
        return cast(em, _left(em, x, y, outside, dtype), dtype)
    amount = em.op("Where", outside, width, y, hint="amount")
    return cast(em, _right(em, x, amount, width), dtype)


def _left(em: Emitter, x: ir.Value, y: ir.Value, outside: ir.Value, dtype: ir.DataType) -> ir.Value:
    amount = em.op("Where", outside, 0, y, hint="amount")
    if dtype.bitwidth < 64:
        powers = (1 << np.arange(dtype.bitwidth)).astype(dtype.numpy()).astype(np.int64)
        shifted = em.op("Mul", x, em.op("Gather", powers, amount))
    else:
        bits, places = cast(em, x, _UINT64), cast(em, amount, _UINT64)
        shifted = cast(em, em.op("BitShift", bits, places, direction="LEFT"), _INT64)
    return em.op("Where", outside, 0, shifted)


def _right(em: Emitter, x: ir.Value, amount: ir.Value, width: int) -> ir.Value:
    op = em.op
    half = op("Div", amount, 2, hint="half")
    powers = em.constant(2 ** np.arange(width // 2 + 1, dtype=np.int64), "powers")
    for part in (half, op("Sub", amount, half, hint="rest")):
        power = op("Gather", powers, part, hint="power")
        multiple = op("Sub", x, op("Mod", x, power), hint="multiple")
        x = op("Div", multiple, power, hint="shifted")
    return x


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
    wide = [cast(em, value, _INT64) for value in values]
    if view.node.op_type == "BitwiseNot":
        result = em.op("Sub", -1, wide[0])
    else:
        result = _by_bits(em, _LOGIC[view.node.op_type], wide, values, _width(dtype))
    return cast(em, result, dtype)


def _width(dtype: ir.DataType) -> int:
    """Return the number of bits that hold every value of `dtype` in int64."""
    bits = int(np.dtype(dtype.numpy()).itemsize) * 8
    return bits if dtype.is_signed() or bits == 64 else bits + 1


def _by_bits(
    em: Emitter, logic: str, wide: list[ir.Value], values: list[ir.Value], width: int
) -> ir.Value:
    powers = em.constant(2 ** np.arange(width - 1, dtype=np.int64), "powers")
    bits = [_bits(em, x, value, powers, width) for x, value in zip(wide, values, strict=True)]
    chosen = em.op(logic, *bits)  # (..., width)
    numbers = cast(em, chosen, _INT64)
    places = [2**k for k in range(min(width - 1, _HALF))]
    if width <= _HALF:
        return _weighted(em, numbers, [*places, -(2 ** (width - 1))])
    # Two sums, because the ReduceSum of int64 in onnxruntime is exact up to 2 ** 53 only.
    rest = [2**k for k in range(width - 1 - _HALF)] + [-(2 ** (width - 1 - _HALF))]
    low = _weighted(em, numbers, places + [0] * len(rest))
    high = _weighted(em, numbers, [0] * len(places) + rest)
    return em.op("Add", low, em.op("Mul", high, 2**_HALF))


def _weighted(em: Emitter, bits: ir.Value, places: list[int]) -> ir.Value:
    """Return the sum over the last axis of each bit times its place."""
    weighted = em.op("Mul", bits, places)
    return reduce(em, "ReduceSum", weighted, [-1], keepdims=False)


def _bits(em: Emitter, x: ir.Value, value: ir.Value, powers: ir.Value, width: int) -> ir.Value:
    """Return the bits of `x` along a new last axis, lowest first: (..., width), bool."""
    op = em.op
    column = unsqueeze(em, x, [len(known_dims(value))])
    negative = op("Less", column, 0)
    magnitude = op("Where", negative, op("Sub", column, -(2 ** (width - 1))), column)
    shifted = op("Div", magnitude, powers)
    bit = op("Mod", shifted, 2)
    return op("Concat", cast(em, bit, _BOOL), negative, axis=-1)


# Mod-28 of floats with `fmod=0`, for opsets below 28.


def lower_mod_28(view: Rewritten, em: Emitter) -> ir.Value:
    """Turn the truncated remainder, which every opset has, into the floored one.

    r = Mod(A, B, fmod=1), exact, with the sign of A
    where r is not 0 and its sign is not that of B: r + B, rounded as the definition is
    the result is Abs of that * Sign(B), which gives a zero the sign of B

    NaNs compare false throughout and stay. The sign of zero does not come from a Where, because
    that of onnxruntime loses it.
    """
    op = em.op
    a, b = view.operands("A", "B")
    dtype = a.dtype
    if dtype is None or not dtype.is_floating_point():
        name = "unknown" if dtype is None else dtype.name
        raise Refusal("element-type", f"the type of `{a.name}` is {name}, no float that Mod takes")
    rest = op("Mod", a, b, fmod=1)
    if view.integer("fmod") != 0:
        return rest
    up = op("And", op("Less", rest, 0.0), op("Greater", b, 0.0))
    down = op("And", op("Greater", rest, 0.0), op("Less", b, 0.0))
    crossed = op("Or", up, down)
    moved = where(em, crossed, op("Add", rest, b), rest)
    size = op("Abs", moved)
    return op("Mul", size, op("Sign", b))


# Pow-12 with an exponent of another type, or of integers, for opset 11.


_WIDE_FLOATS = {_D.FLOAT, _D.FLOAT16, _D.DOUBLE}
_EXACT_IN_DOUBLE = {_D.INT8, _D.INT16, _D.INT32, _D.UINT8, _D.UINT16, _D.UINT32}
_EXPONENTS = _WIDE_FLOATS | _EXACT_IN_DOUBLE | {_D.INT64, _D.UINT64}
_BITS = 6
"""Bits of the largest exponent, 63, with which a power of 64 bits, but for 0, 1 and -1, is held."""


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
    if dtype == _D.INT64 and other in _EXPONENTS - _WIDE_FLOATS:
        return _by_squares(em, base, cast(em, exponent, _D.INT64))
    if (
        dtype not in _WIDE_FLOATS | _EXACT_IN_DOUBLE | {_D.INT64}
        or other not in _EXPONENTS
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


def _by_squares(em: Emitter, base: ir.Value, exponent: ir.Value) -> ir.Value:
    """Return integer powers, all of int64.

        power = product of base ** (2 ** i) for each bit i that the exponent has

    An exponent above 63 counts as 62 or 63: only the powers of 0, 1 and -1 are held, which tell odd
    from even. One below 0 gives what is left of a fraction, 0, for a base other than 1 and -1.
    """
    op = em.op
    zero, one, two = (em.constant(n, "number") for n in (0, 1, 2))

    odd = op("Mod", exponent, two, hint="odd")
    most = op("Add", odd, 62, hint="most")
    rest = where(em, op("Less", most, exponent), most, exponent, "exponent")
    is_negative = op("Less", exponent, zero)
    rest = where(em, is_negative, odd, rest, "exponent")
    is_unit = op("Equal", op("Abs", base), one)
    is_held = op("Or", op("Not", is_negative), is_unit)
    power, square = cast(em, is_held, _D.INT64), base
    for bit in range(_BITS):
        half = op("Div", rest, two, hint="half")
        digit = op("Sub", rest, op("Mul", half, two), hint="bit")
        # The square where the bit is set, else 1; a Where would need operands of one shape.
        factor = op("Add", op("Mul", digit, op("Sub", square, one)), one, hint="factor")
        power, rest = op("Mul", power, factor, hint="power"), half
        if bit + 1 < _BITS:
            square = op("Mul", square, square, hint="square")
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
            is_beyond = em.op(compare, result, bound, hint="is_beyond")
            result = where(em, is_beyond, bound, result, "bounded")
    return em.op("Identity", x) if result is x else result


# Equal-19 of strings, for opsets 11 to 18.


_TO_THE_END = (1 << 31) - 1


def lower_equal_19(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Number the strings of both operands, equal ones alike, and compare the numbers.

    Unique numbers them, which knows strings since opset 11. Nothing is done for other types.
    """
    op = em.op
    operands = view.required("A"), view.required("B")
    if any(value.dtype != _D.STRING for value in operands):
        return None
    rows = [op("Reshape", value, [-1]) for value in operands]
    both = op("Concat", *rows, axis=0, hint="both")
    unique = em.multi("Unique", both, count=3, hint="numbered")
    unique[1].name = ""
    zero, end = em.constant([0], "start"), em.constant([_TO_THE_END], "end")
    first = op("Reshape", op("Size", operands[0]), [1], hint="count")
    numbers = []
    for value, start, stop in zip(operands, (zero, first), (first, end), strict=True):
        part = op("Slice", unique[2], start, stop, hint="numbers")
        empty = not never_empty(value)
        numbers.append(reshape_literally(em, part, op("Shape", value), empty=empty))
    return op("Equal", *numbers, hint="equal")


# CumProd-26, for opsets below 26.


def lower_cum_prod_26(view: Rewritten, em: Emitter) -> ir.Value:
    """Multiply along the axis with a Scan, in the order of CumProd.

    An axis that is known at run time only takes one If per axis of the data.

    Refuses an unknown rank.
    """
    data, axis = view.operands("x", "axis")
    exclusive, reverse = view.integer("exclusive") != 0, view.integer("reverse") != 0
    dims, dtype = dims_of(data), data.dtype
    if dims is None or dtype is None or not dims:
        raise Refusal(
            "unknown-rank",
            f"the rank of `{data.name}` is unknown",
            help="declare the shape of the input",
        )
    rank = len(dims)
    known = view.known(axis)
    if known is not None or rank == 1:
        place = 0 if known is None else int(known.ravel()[0]) % rank
        return _scan(em, data, dtype, rank, place, exclusive, reverse)
    marks, result = axis_marks(em, axis, rank), data
    for place in range(rank):
        result = switch(
            em,
            marks,
            place,
            result,
            lambda value, place=place: _scan(  # type: ignore[misc]
                em, value, dtype, rank, place, exclusive, reverse
            ),
        )
    return result


def _scan(
    em: Emitter,
    data: ir.Value,
    dtype: ir.DataType,
    rank: int,
    axis: int,
    exclusive: bool,
    reverse: bool,
) -> ir.Value:
    """Return the products along one axis.

    body(product, slice): next = product * slice; gives `product` when exclusive, else `next`
    """
    others = [a for a in range(rank) if a != axis]
    shape = em.op("Gather", em.op("Shape", data), others, hint="slice_shape")  # (rank - 1,)
    one = ir.tensor(np.ones(1, dtype.numpy()))
    ones = em.op("ConstantOfShape", shape, value=one)
    dims = dims_of(data) or (None,) * rank
    sizes = [dims[a] for a in others]
    result = accumulated(em, "Mul", ones, data, sizes, axis, exclusive=exclusive, reverse=reverse)
    result.shape = data.shape and ir.Shape(data.shape)
    return result
