"""BitCast-26 of integers to others of their width, and of bools, for opsets below 26."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_bit_cast_26"]

_D = ir.DataType
_INTEGERS = {_D.INT8, _D.INT16, _D.INT32, _D.INT64, _D.UINT8, _D.UINT16, _D.UINT32, _D.UINT64}


def lower_bit_cast_26(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Cast an integer to another of its width, which keeps all bits; a bool is the byte 0 or 1.

    Cast between fixed-point types discards higher bits and reinterprets the rest (Cast-13).

    Refuses floats: no older operator reads or makes the bits of what is not a number. Refuses to
    read integers as bool, of which the text does not say what bytes above 1 are.
    """
    view = NodeView(node, context.opset_of(node))
    data, to = view.required("input"), _D(view.integer("to"))
    given = data.dtype
    if given == to:
        return Replacement((em.op("Identity", data, dtype=to),))
    is_byte = given == _D.BOOL and to in (_D.INT8, _D.UINT8)
    fits = given in _INTEGERS and to in _INTEGERS and _width(given) == _width(to)
    if not (is_byte or fits):
        name = "an unknown type" if given is None else given.name
        raise Refusal(
            "element-type",
            f"no operator before opset 26 reads the bits of {name} as {to.name}",
            lowest_opset=26,
        )
    return Replacement((em.op("Cast", data, attributes={"to": to.value}, dtype=to),))


def _width(dtype: ir.DataType | None) -> int:
    return 0 if dtype is None else int(np.dtype(dtype.numpy()).itemsize)
