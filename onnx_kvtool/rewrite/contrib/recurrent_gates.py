"""What gates a recurrence: LinearAttentionGate of `com.microsoft`, and the like inside others."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.contrib.rule import Builder, is_read
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import Refusal, Replacement
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["linear_attention_gate"]

_FLOAT = ir.DataType.FLOAT


def linear_attention_gate(view: NodeView, em: Emitter) -> Replacement:
    """Write LinearAttentionGate as Add, Softplus and Mul, and as Sigmoid, in float32."""
    a, b, op = view.required("a"), view.input("b"), Builder(em, _FLOAT)
    bias, factor = (_by_head(em, view.required(name)) for name in ("dt_bias", "decay_scale"))
    rate = op("Softplus", op("Add", cast(em, a, _FLOAT), bias, hint="biased"))
    decay = cast(em, op("Mul", rate, factor, hint="decay"), a.dtype or ir.DataType.UNDEFINED)
    if not is_read(view, 1):
        return Replacement((decay, None)[: len(view.node.outputs)])
    if b is None:
        raise Refusal(
            "contrib-form",
            "`beta` of `LinearAttentionGate` is read, which needs its input `b`, which is absent",
        )
    beta = op("Sigmoid", cast(em, b, _FLOAT), hint="beta")
    return Replacement((decay, cast(em, beta, b.dtype or ir.DataType.UNDEFINED)))


def _by_head(em: Emitter, given: ir.Value) -> ir.Value:
    """Return a number for each head as a vector; onnxruntime counts elements, and no axes."""
    dims = dims_of(given)
    if dims is not None and len(dims) == 1:
        return given
    return em.op("Reshape", given, em.constant([-1], "shape"), dtype=_FLOAT)
