"""Pow-12 with an exponent of another type, or of integers, for opset 11."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement

__all__ = ["lower_pow_12"]

_D = ir.DataType
_WIDE_FLOATS = {_D.FLOAT, _D.FLOAT16, _D.DOUBLE}
_EXACT_IN_DOUBLE = {_D.INT8, _D.INT16, _D.INT32, _D.UINT8, _D.UINT16, _D.UINT32}
_EXPONENTS = _WIDE_FLOATS | _EXACT_IN_DOUBLE | {_D.INT64, _D.UINT64}


def lower_pow_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Compute in float64, which Pow takes in every opset, and cast back.

    float64 holds each base and exponent but for 64-bit exponents beyond 2 ** 53, which are rounded
    as C's and numpy's power of a float and an integer round them. The power of two integers is
    rounded to the nearest one before the Cast, so that a library whose power of 3 and 2 is just
    below 9 does not give 8; a power that is no integer, with a negative exponent, is at most 1/2.

    Refuses 64-bit integer bases: their powers do not fit float64.
    """
    view = NodeView(node, context.opset_of(node))
    base, exponent = view.required("X"), view.required("Y")
    dtype, other = base.dtype, exponent.dtype
    if dtype not in _WIDE_FLOATS | _EXACT_IN_DOUBLE or other not in _EXPONENTS or dtype is None:
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
