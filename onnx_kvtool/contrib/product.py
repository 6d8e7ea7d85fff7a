"""Products and convolutions that onnxruntime's optimiser has fused with their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.contrib.rule import given, known_rank, no_form, only, refuse_value
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import channels_first, channels_last
from onnx_kvtool.ops.view import NodeView

_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softplus": (),
    "Softsign": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}
"""Activations that may be fused, with their attributes in the order of `activation_params`."""

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def fused_mat_mul(view: NodeView, em: Emitter) -> Replacement:
    """Write FusedMatMul as Transpose, MatMul and Mul, each only if it changes something.

    An `alpha` below 1 scales a float16 factor before the product, which could overflow.
    """
    left, right = (
        _transposed(view, em, letter, batch=view.integer(f"transBatch{letter}") != 0)
        for letter in "AB"
    )
    return _scaled_product(view, em, left, right)


def fused_mat_mul_activation(view: NodeView, em: Emitter) -> Replacement:
    """Write FusedMatMulActivation as the form of FusedMatMul, and the activation.

    Refuses activations along an axis.
    """
    refuse_value(view, "activation_axis", None)
    (product,) = fused_mat_mul(view, em).outputs
    assert product is not None
    return only(_with_activation(view, em, product))


def _scaled_product(view: NodeView, em: Emitter, left: ir.Value, right: ir.Value) -> Replacement:
    op, alpha = em.op, view.real("alpha")
    if alpha == 1.0:
        return only(op("MatMul", left, right))
    if left.dtype == ir.DataType.FLOAT16 and abs(alpha) < 1:
        return only(op("MatMul", op("Mul", left, alpha, hint="scaled"), right))
    return only(op("Mul", op("MatMul", left, right), alpha, hint="scaled"))


def _transposed(view: NodeView, em: Emitter, letter: str, *, batch: bool) -> ir.Value:
    """Return a factor, transposed as the attributes say: its batch, its matrix, or both."""
    x = view.required(letter)
    matrix = view.integer(f"trans{letter}") != 0
    if not matrix and not batch:
        return x
    order = list(range(known_rank(view, x)))
    if batch and len(order) < 3:
        raise no_form(
            f"`{x.name}` of `FusedMatMul` has {len(order)} dimensions, expected 3 or more to "
            "transpose a batch"
        )
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if matrix and len(order) > 1:
        order[-2:] = order[:-3:-1]
    if order == sorted(order):
        return x
    return em.op("Transpose", x, perm=order)


def fused_gemm(view: NodeView, em: Emitter) -> Replacement:
    """Write FusedGemm as Gemm and the activation."""
    attributes = given(view, "alpha", "beta", "transA", "transB")
    inputs = (*view.operands("A", "B"), view.input("C"))
    result = em.op("Gemm", *inputs, attributes=attributes)
    return only(_with_activation(view, em, result))


def fused_conv(view: NodeView, em: Emitter) -> Replacement:
    """Write FusedConv as Conv, Add of `Z`, and the activation."""
    op, z = em.op, view.input("Z")
    inputs = (*view.operands("X", "W"), view.input("B"))
    result = op("Conv", *inputs, attributes=given(view, *_CONV))
    if z is not None:
        result = op("Add", result, z)
    activation, numbers = view.attribute("activation"), view.attribute("activation_params") or ()
    assert isinstance(numbers, Sequence)
    if activation == "Clip":
        if len(numbers) != 2:
            raise _no_activation(view, f"`Clip` of {len(numbers)} numbers, expected 2")
        return only(op("Clip", result, *(float(n) for n in numbers)))
    names = _ACTIVATIONS.get(str(activation), ())
    if len(numbers) > len(names):
        raise _no_activation(view, f"`{activation}` of {len(numbers)} numbers")
    named = dict(zip(names, (float(n) for n in numbers), strict=False))
    return only(_activated(view, em, result, activation, named))


def nhwc_conv(view: NodeView, em: Emitter) -> Replacement:
    """Write NhwcConv (channels last, in the weights too) as Conv with Transposes."""
    x, w = view.operands("X", "W")
    rank = known_rank(view, x)
    front, weights = channels_first(em, x, rank), channels_first(em, w, rank)
    result = em.op("Conv", front, weights, view.input("B"), attributes=given(view, *_CONV))
    return only(channels_last(em, result, rank))


def _with_activation(view: NodeView, em: Emitter, x: ir.Value) -> ir.Value:
    """Return the activation of a node whose parameters are attributes of their own."""
    activation = view.attribute("activation")
    names = _ACTIVATIONS.get(str(activation), ())
    found = given(view, *(f"activation_{name}" for name in names))
    named = {name.removeprefix("activation_"): value for name, value in found.items()}
    return _activated(view, em, x, activation, named)


def _activated(
    view: NodeView,
    em: Emitter,
    x: ir.Value,
    activation: object,
    attributes: Mapping[str, AttributeValue],
) -> ir.Value:
    if activation in (None, ""):
        return x
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise _no_activation(view, f"`{activation}`")
    return em.op(activation, x, attributes=attributes)


def _no_activation(view: NodeView, what: str) -> Refusal:
    return no_form(f"the activation of `{view.node.op_type}` is {what}, which is unknown")
