"""Products and convolutions that onnxruntime's optimiser has fused with their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, given, known_rank, no_form, refuse_value
from onnx_kvtool.emit.emitter import AttributeValue, Refusal
from onnx_kvtool.emit.forms import channels_first, channels_last

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


def fused_mat_mul(site: Site) -> ir.Value:
    """Write FusedMatMul as Transpose, MatMul and Mul, each only if it changes something.

    An `alpha` below 1 scales a float16 factor before the product, which could overflow.
    """
    left, right = (
        _transposed(site, letter, batch=site.integer(f"transBatch{letter}") != 0) for letter in "AB"
    )
    op, alpha = site.op, site.real("alpha")
    if alpha == 1.0:
        return op("MatMul", left, right)
    if left.dtype == ir.DataType.FLOAT16 and abs(alpha) < 1:
        return op("MatMul", op("Mul", left, alpha, hint="scaled"), right)
    return op("Mul", op("MatMul", left, right), alpha, hint="scaled")


def fused_mat_mul_activation(site: Site) -> ir.Value:
    """Write FusedMatMulActivation as the form of FusedMatMul, and the activation.

    Refuses activations along an axis.
    """
    refuse_value(site, "activation_axis", None)
    return _with_activation(site, fused_mat_mul(site))


def _transposed(site: Site, letter: str, *, batch: bool) -> ir.Value:
    """Return a factor, transposed as the attributes say: its batch, its matrix, or both."""
    x = site.required(letter)
    matrix = site.integer(f"trans{letter}") != 0
    if not matrix and not batch:
        return x
    order = list(range(known_rank(site, x)))
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
    return site.op("Transpose", x, perm=order)


def fused_gemm(site: Site) -> ir.Value:
    """Write FusedGemm as Gemm and the activation."""
    attributes = given(site, "alpha", "beta", "transA", "transB")
    inputs = (*site.operands("A", "B"), site.input("C"))
    result = site.op("Gemm", *inputs, attributes=attributes)
    return _with_activation(site, result)


def fused_conv(site: Site) -> ir.Value:
    """Write FusedConv as Conv, Add of `Z`, and the activation."""
    op, z = site.op, site.input("Z")
    inputs = (*site.operands("X", "W"), site.input("B"))
    result = op("Conv", *inputs, attributes=given(site, *_CONV))
    if z is not None:
        result = op("Add", result, z)
    activation, numbers = site.attribute("activation"), site.attribute("activation_params") or ()
    assert isinstance(numbers, Sequence)
    if activation == "Clip":
        if len(numbers) != 2:
            raise _no_activation(site, f"`Clip` of {len(numbers)} numbers, expected 2")
        return op("Clip", result, *(float(n) for n in numbers))
    names = _ACTIVATIONS.get(str(activation), ())
    if len(numbers) > len(names):
        raise _no_activation(site, f"`{activation}` of {len(numbers)} numbers")
    named = dict(zip(names, (float(n) for n in numbers), strict=False))
    return _activated(site, result, activation, named)


def nhwc_conv(site: Site) -> ir.Value:
    """Write NhwcConv (channels last, in the weights too) as Conv with Transposes."""
    x, w = site.operands("X", "W")
    rank = known_rank(site, x)
    front, weights = channels_first(site, x, rank), channels_first(site, w, rank)
    result = site.op("Conv", front, weights, site.input("B"), attributes=given(site, *_CONV))
    return channels_last(site, result, rank)


def _with_activation(site: Site, x: ir.Value) -> ir.Value:
    """Return the activation of a node whose parameters are attributes of their own."""
    activation = site.attribute("activation")
    names = _ACTIVATIONS.get(str(activation), ())
    found = given(site, *(f"activation_{name}" for name in names))
    named = {name.removeprefix("activation_"): value for name, value in found.items()}
    return _activated(site, x, activation, named)


def _activated(
    site: Site,
    x: ir.Value,
    activation: object,
    attributes: Mapping[str, AttributeValue],
) -> ir.Value:
    if activation in (None, ""):
        return x
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise _no_activation(site, f"`{activation}`")
    return site.op(activation, x, attributes=attributes)


def _no_activation(site: Site, what: str) -> Refusal:
    return no_form(f"the activation of `{site.node.op_type}` is {what}, which is unknown")
