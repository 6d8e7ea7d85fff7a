"""Which IR version brought what a model can hold."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

__all__ = ["CONSTANTS", "FIRST_IR", "FUNCTIONS", "OVERLOADS"]

_D = ir.DataType

FIRST_IR: Mapping[ir.DataType, int] = {
    **dict.fromkeys((_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ), 9),
    **dict.fromkeys((_D.INT4, _D.UINT4), 10),
    _D.FLOAT4E2M1: 11,
    _D.FLOAT8E8M0: 12,
    **dict.fromkeys((_D.INT2, _D.UINT2), 13),
    **dict.fromkeys((_D.FLOAT6E2M3, _D.FLOAT6E3M2), 14),
}
"""IR version that brought each element type; those that are missing are as old as ONNX itself."""

CONSTANTS = 4
"""IR version from which on an initializer need not be an input of its graph."""

FUNCTIONS = 8
"""IR version that brought model-local functions."""

OVERLOADS = 10
"""IR version that brought overloads of functions."""
