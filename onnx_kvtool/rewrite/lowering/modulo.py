"""Mod-28 of floats with `fmod=0`, for opsets below 28."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_mod_28"]

_BOOL = ir.DataType.BOOL


def lower_mod_28(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Turn the truncated remainder, which every opset has, into the floored one.

    r = Mod(A, B, fmod=1), exact, with the sign of A
    where r is not 0 and its sign is not that of B: r + B, rounded as the definition is
    the result is Abs of that * Sign(B), which gives a zero the sign of B

    NaNs compare false throughout and stay. The sign of zero does not come from a Where, because
    that of onnxruntime loses it.
    """
    view = NodeView(node, context.opset_of(node))
    a, b = view.required("A"), view.required("B")
    dtype = a.dtype
    if dtype is None or not dtype.is_floating_point():
        name = "unknown" if dtype is None else dtype.name
        raise Refusal("element-type", f"the type of `{a.name}` is {name}, no float that Mod takes")
    rest = em.op("Mod", a, b, attributes={"fmod": 1}, dtype=dtype)
    if view.integer("fmod") != 0:
        return Replacement((rest,))
    zero = em.constant(np.array(0.0, dtype.numpy()), "zero")

    def compare(op: str, x: ir.Value) -> ir.Value:
        return em.op(op, x, zero, dtype=_BOOL)

    up = em.op("And", compare("Less", rest), compare("Greater", b), dtype=_BOOL)
    down = em.op("And", compare("Greater", rest), compare("Less", b), dtype=_BOOL)
    crossed = em.op("Or", up, down, dtype=_BOOL)
    moved = where(em, crossed, em.op("Add", rest, b, dtype=dtype), rest)
    size = em.op("Abs", moved, dtype=dtype)
    return Replacement((em.op("Mul", size, em.op("Sign", b, dtype=dtype), dtype=dtype),))
