"""Element types that an operator does not take: exact detours through one that it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.rewrite.refusal import Refusal

__all__ = ["Detour", "exact_detour"]

_D = ir.DataType

_CARRIERS: Mapping[ir.DataType, ir.DataType] = {
    # All 256 patterns of the 8-bit floats survive the way through float16, but for the payloads
    # of float8e5m2's NaNs. The powers of two of float8e8m0 reach from 2**-127 to 2**127: float64
    # holds them all as normal numbers; float16 does not hold them, float32 only as a subnormal.
    _D.FLOAT8E4M3FN: _D.FLOAT16,
    _D.FLOAT8E4M3FNUZ: _D.FLOAT16,
    _D.FLOAT8E5M2: _D.FLOAT16,
    _D.FLOAT8E5M2FNUZ: _D.FLOAT16,
    _D.FLOAT8E8M0: _D.DOUBLE,
    _D.FLOAT4E2M1: _D.FLOAT16,
    _D.INT4: _D.INT8,
    _D.UINT4: _D.UINT8,
    _D.INT2: _D.INT8,
    _D.UINT2: _D.UINT8,
}


@dataclass(frozen=True, slots=True)
class Detour:
    """Casts that carry every value of a type there and back unchanged.

    Attributes:
        carrier: The type in between.
        into: Attributes of the Cast to the carrier.
        back: Attributes of the Cast back. float8e5m2 has infinities, which the default
            `saturate=1` would turn into the largest finite number.
    """

    carrier: ir.DataType
    into: Mapping[str, int]
    back: Mapping[str, int]


def exact_detour(dtype: ir.DataType, op_type: str, opset: int) -> Detour | None:
    """Return how values of `dtype` pass through the first input of `op_type` at `opset`.

    Returns:
        None when the operator takes the type as it is.

    Raises:
        Refusal: If neither the operator nor an exact Cast takes the type at `opset`.
    """
    if _takes(op_type, 0, dtype, opset):
        return None
    carrier = _CARRIERS.get(dtype)
    if carrier is not None and _casts(dtype, opset):
        back = {"to": dtype.value} | ({"saturate": 0} if dtype == _D.FLOAT8E5M2 else {})
        return Detour(carrier, {"to": carrier.value}, back)
    raise Refusal(
        "element-type",
        f"`{op_type}` does not take {dtype.name} at opset {opset}"
        + (", nor does Cast" if carrier is not None else ""),
        help="choose a higher opset, or change the type of the cache",
        lowest_opset=_lowest(dtype, op_type, carrier, opset),
    )


def _takes(op_type: str, index: int, dtype: ir.DataType, opset: int) -> bool:
    facts = op_facts(op_type, opset)
    formal = facts.input(index) if facts else None
    return formal is not None and f"tensor({dtype.name.lower()})" in formal.types


def _casts(dtype: ir.DataType, opset: int) -> bool:
    return _takes("Cast", 0, dtype, opset)


def _lowest(
    dtype: ir.DataType, op_type: str, carrier: ir.DataType | None, opset: int
) -> int | None:
    for higher in range(opset + 1, NEWEST + 1):
        if _takes(op_type, 0, dtype, higher) or (carrier is not None and _casts(dtype, higher)):
            return higher
    return None
