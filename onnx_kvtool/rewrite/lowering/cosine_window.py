"""HannWindow-17, HammingWindow-17 and BlackmanWindow-17 of float64 or integers, below opset 17.

Matches
    output = HannWindow(size) <output_datatype, periodic>

Emits
    angle  = Range(0, size, 1) * (2 pi / N)        # N is size, or size - 1 for a symmetric one
    output = Cast(a0 - a1 * Cos(angle) + a2 * Cos(2 * angle), output_datatype)

in float64. The schema's body computes in float32, which leaves a float64 output wrong from the
eighth digit on, and an integer one wrong where the window is 1. a0, a1 and a2 are the float32
numbers of the body, as onnxruntime has them: 0.54347825 for the 25/46 of HammingWindow.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_cosine_window_17"]

_D = ir.DataType
_TERMS = {
    "BlackmanWindow": (0.42, 0.5, 0.08),
    "HammingWindow": (25 / 46, 1 - 25 / 46, 0.0),
    "HannWindow": (0.5, 0.5, 0.0),
}
_BY_BODY = {_D.FLOAT, _D.FLOAT16, _D.BFLOAT16}


def lower_cosine_window_17(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement | None:
    """Write a window in float64; None, for the schema's body, where float32 is exact enough."""
    view = NodeView(node, context.opset_of(node))
    size, dtype = view.required("size"), _D(view.integer("output_datatype"))
    if dtype in _BY_BODY:
        return None

    def op(kind: str, *inputs: ir.Value, hint: str | None = None) -> ir.Value:
        return em.op(kind, *inputs, dtype=_D.DOUBLE, hint=hint)

    def number(value: float, name: str) -> ir.Value:
        return em.constant(np.array(value, np.float64), name)

    count = cast(em, size, _D.DOUBLE, "count")
    length = count if view.integer("periodic") else op("Sub", count, number(1, "one"))
    steps = op("Range", number(0, "zero"), count, number(1, "one"))
    angle = op("Mul", steps, op("Div", number(2 * math.pi, "tau"), length), hint="angle")
    a0, a1, a2 = (float(np.float32(term)) for term in _TERMS[node.op_type])
    first = op("Mul", op("Cos", angle), number(a1, "a1"))
    window = op("Sub", number(a0, "a0"), first, hint="window")
    if a2:
        double = op("Mul", angle, number(2, "two"))
        window = op("Add", window, op("Mul", op("Cos", double), number(a2, "a2")), hint="window")
    return Replacement((cast(em, window, dtype),))
