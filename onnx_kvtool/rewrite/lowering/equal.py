"""Equal-19 of strings, for opsets 11 to 18."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.reshape import never_empty, reshape_literally

__all__ = ["lower_equal_19"]

_D = ir.DataType
_TO_THE_END = (1 << 31) - 1


def lower_equal_19(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement | None:
    """Number the strings of both operands, equal ones alike, and compare the numbers.

    Unique numbers them, which knows strings since opset 11. Nothing is done for other types.
    """
    view = NodeView(node, context.opset_of(node))
    operands = view.required("A"), view.required("B")
    if any(value.dtype != _D.STRING for value in operands):
        return None
    flat = em.constant([-1], "flat")
    rows = [em.op("Reshape", value, flat, dtype=_D.STRING) for value in operands]
    both = em.op("Concat", *rows, attributes={"axis": 0}, dtype=_D.STRING, hint="both")
    unique = em.multi("Unique", both, dtypes=[_D.STRING, _D.INT64, _D.INT64], hint="numbered")
    unique[1].name = ""
    zero, end = em.constant([0], "start"), em.constant([_TO_THE_END], "end")
    first = em.op("Reshape", em.op("Size", operands[0]), em.constant([1], "one"), hint="count")
    numbers = []
    for value, start, stop in zip(operands, (zero, first), (first, end), strict=True):
        part = em.op("Slice", unique[2], start, stop, hint="numbers")
        empty = not never_empty(value)
        numbers.append(reshape_literally(em, part, em.op("Shape", value), empty=empty))
    return Replacement((em.op("Equal", *numbers, dtype=_D.BOOL, hint="equal"),))
