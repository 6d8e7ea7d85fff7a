"""Pow-12 with an exponent of another type, or of integers, for opset 11."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_pow_12"]

_D = ir.DataType
_WIDE_FLOATS = {_D.FLOAT, _D.FLOAT16, _D.DOUBLE}
_EXACT_IN_DOUBLE = {_D.INT8, _D.INT16, _D.INT32, _D.UINT8, _D.UINT16, _D.UINT32}
_EXPONENTS = _WIDE_FLOATS | _EXACT_IN_DOUBLE | {_D.INT64, _D.UINT64}
_BITS = 6
"""Bits of the largest exponent, 63, with which a power of 64 bits, but for 0, 1 and -1, is held."""


def lower_pow_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Compute in float64, which Pow takes in every opset, and cast back.

    float64 holds each base and exponent but for 64-bit exponents beyond 2 ** 53, which are rounded
    as C's and numpy's power of a float and an integer round them. The power of two integers is
    rounded to the nearest one before the Cast, so that a library whose power of 3 and 2 is just
    below 9 does not give 8; a power that is no integer, with a negative exponent, is at most 1/2.

    The power of an int64 and a float is that of C and numpy, which widen both to float64; that of
    an int64 and an integer is made of squares, which wrap as int64 does.

    Refuses bfloat16, which the target does not have.
    """
    view = NodeView(node, context.opset_of(node))
    base, exponent = view.required("X"), view.required("Y")
    dtype, other = base.dtype, exponent.dtype
    if dtype == _D.INT64 and other in _EXPONENTS - _WIDE_FLOATS:
        return Replacement((_by_squares(em, base, cast(em, exponent, _D.INT64)),))
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
            lowest_opset=12 if dtype != _D.BFLOAT16 else 13,
        )
    wide = [cast(em, value, _D.DOUBLE) for value in (base, exponent)]
    power = em.op("Pow", *wide, dtype=_D.DOUBLE)
    if dtype in _EXACT_IN_DOUBLE and other not in _WIDE_FLOATS:
        power = em.op("Round", power, dtype=_D.DOUBLE)
    return Replacement((cast(em, power, dtype),))


def _by_squares(em: Emitter, base: ir.Value, exponent: ir.Value) -> ir.Value:
    """Return integer powers, all of int64.

        power = product of base ** (2 ** i) for each bit i that the exponent has

    An exponent above 63 counts as 62 or 63: only the powers of 0, 1 and -1 are held, which tell odd
    from even. One below 0 gives what is left of a fraction, 0, for a base other than 1 and -1.
    """
    zero, one, two = (em.constant(n, "number") for n in (0, 1, 2))

    def test(op_type: str, *operands: ir.Value) -> ir.Value:
        return em.op(op_type, *operands, dtype=_D.BOOL)

    odd = em.op("Mod", exponent, two, hint="odd")
    most = em.op("Add", odd, em.constant(62, "number"), hint="most")
    rest = where(em, test("Less", most, exponent), most, exponent, "exponent")
    is_negative = test("Less", exponent, zero)
    rest = where(em, is_negative, odd, rest, "exponent")
    is_unit = test("Equal", em.op("Abs", base), one)
    is_held = test("Or", test("Not", is_negative), is_unit)
    power, square = cast(em, is_held, _D.INT64), base
    for bit in range(_BITS):
        half = em.op("Div", rest, two, hint="half")
        digit = em.op("Sub", rest, em.op("Mul", half, two), hint="bit")
        # The square where the bit is set, else 1; a Where would need operands of one shape.
        factor = em.op("Add", em.op("Mul", digit, em.op("Sub", square, one)), one, hint="factor")
        power, rest = em.op("Mul", power, factor, hint="power"), half
        if bit + 1 < _BITS:
            square = em.op("Mul", square, square, hint="square")
    return power
