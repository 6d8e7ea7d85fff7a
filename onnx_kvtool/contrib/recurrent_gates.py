"""What gates a recurrence: LinearAttentionGate of `com.microsoft`, and the like inside others."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.rule import Builder, is_read, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["delta_decay", "delta_rate", "linear_attention_gate"]

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


def delta_decay(view: NodeView, em: Emitter, decay: ir.Value, tail: list[int]) -> ir.Value:
    """Return the logarithm by which the state of a GatedDeltaNet decays, float32.

    Args:
        view: The node.
        em: Where to build.
        decay: (..., KV) or (..., KV, D).
        tail: What comes behind the tokens: KV, or KV and D.

    Raises:
        Refusal: If the activation is unknown, or `a_log` or `dt_bias` absent.
    """
    how = view.string("gate_activation")
    refuse_value(view, "gate_activation", "none", "softplus", "qwen", "sigmoid", "kda")
    wide, op = cast(em, decay, _FLOAT), Builder(em, _FLOAT)
    if how == "none":
        return wide
    power, bias = view.input("a_log"), view.input("dt_bias")
    if power is None or bias is None:
        name = "a_log" if power is None else "dt_bias"
        raise Refusal("contrib-form", f"`{name}` of `GatedDeltaNet` is absent, which `{how}` needs")
    own = known_size(bias, 0, "the size of `dt_bias`")
    if len(dims_of(bias) or ()) > 1 or own != tail[0]:
        bias = op("Reshape", bias, em.constant(tail, "shape"), hint="bias")
    elif len(tail) > 1:
        bias = op("Reshape", bias, em.constant([-1, 1], "column"), hint="bias")
    factor = op("Exp", power)
    if len(tail) > 1:
        factor = op("Reshape", factor, em.constant([-1, 1], "column"), hint="factor")
    biased = op("Add", wide, bias, hint="biased")
    if how in ("softplus", "qwen"):
        return op("Mul", op("Neg", factor), op("Softplus", biased), hint="decay")
    bound = em.constant(np.array(view.attribute("gate_lower_bound"), np.float32), "bound")
    return op("Mul", op("Sigmoid", op("Mul", biased, factor)), bound, hint="decay")


def delta_rate(view: NodeView, em: Emitter, beta: ir.Value) -> ir.Value:
    """Return how much a GatedDeltaNet writes of a difference, float32: (..., KV)."""
    refuse_value(view, "beta_activation", "none", "sigmoid")
    wide = cast(em, beta, _FLOAT)
    if view.string("beta_activation") == "none":
        return wide
    return em.op("Sigmoid", wide, dtype=_FLOAT, hint="beta")
