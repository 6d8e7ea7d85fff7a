"""Operators that were experimental in ONNX before version 1.5, and that onnxruntime still has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder, only
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.dims import dims_of

__all__ = [
    "affine",
    "crop",
    "dynamic_slice",
    "image_scaler",
    "parametric_softplus",
    "scale",
    "scaled_tanh",
]

_FAR = 2**31 - 1


def affine(view: NodeView, em: Emitter) -> Replacement:
    """Write Affine as Mul and Add."""
    x = view.required("X")
    op, (alpha, beta) = _op(em, x), (_number(view, em, x, name) for name in ("alpha", "beta"))
    return only(op("Add", op("Mul", x, alpha), beta))


def crop(view: NodeView, em: Emitter) -> Replacement:
    """Write Crop as Slice of the height and the width."""
    x, border = view.required("input"), view.attribute("border")
    if not isinstance(border, tuple) or len(border) != 4 or min(map(int, border)) < 0:
        raise MalformedNode(
            "attribute-value",
            f"`border` of `Crop` is {border}, expected four numbers, none of them negative",
        )
    left, top, right, bottom = (int(number) for number in border)
    sizes = view.attribute("scale")
    if isinstance(sizes, tuple) and len(sizes) == 2:
        ends = [top + int(sizes[0]), left + int(sizes[1])]
    elif not sizes:
        ends = [-bottom or _FAR, -right or _FAR]
    else:
        raise MalformedNode("attribute-value", f"`scale` of `Crop` is {sizes}, expected two")
    bounds = (em.constant(list(each), "bounds") for each in ((top, left), ends, (2, 3)))
    return only(_op(em, x)("Slice", x, *bounds))


def dynamic_slice(view: NodeView, em: Emitter) -> Replacement:
    """Write DynamicSlice as the Slice-10 that took its place."""
    x, axes = view.required("data"), view.input("axes")
    inputs = [view.required("starts"), view.required("ends"), *([] if axes is None else [axes])]
    return only(_op(em, x)("Slice", x, *inputs))


def image_scaler(view: NodeView, em: Emitter) -> Replacement:
    """Write ImageScaler as Mul, and Add of a number for each channel."""
    x, bias, dims = view.required("input"), view.attribute("bias"), dims_of(view.required("input"))
    channels = None if dims is None or len(dims) != 4 else dims[1]
    if not isinstance(bias, Sequence) or (isinstance(channels, int) and len(bias) != channels):
        raise MalformedNode(
            "attribute-value",
            f"`bias` of `ImageScaler` is {bias}, expected a number for each channel",
        )
    op = _op(em, x)
    shifts = np.array(bias, op.dtype.numpy()).reshape(1, -1, 1, 1)
    scaled = op("Mul", x, _number(view, em, x, "scale"))
    return only(op("Add", scaled, em.constant(shifts, "bias")))


def parametric_softplus(view: NodeView, em: Emitter) -> Replacement:
    """Write ParametricSoftplus as Softplus between two Mul."""
    return _between(view, em, "X", "Softplus")


def scale(view: NodeView, em: Emitter) -> Replacement:
    """Write Scale as Mul."""
    x = view.required("input")
    return only(_op(em, x)("Mul", x, _number(view, em, x, "scale")))


def scaled_tanh(view: NodeView, em: Emitter) -> Replacement:
    """Write ScaledTanh as Tanh between two Mul."""
    return _between(view, em, "input", "Tanh")


def _between(view: NodeView, em: Emitter, name: str, op_type: str) -> Replacement:
    """Return alpha * f(beta * x)."""
    x = view.required(name)
    op, (alpha, beta) = _op(em, x), (_number(view, em, x, name) for name in ("alpha", "beta"))
    return only(op("Mul", op(op_type, op("Mul", x, beta)), alpha))


def _number(view: NodeView, em: Emitter, x: ir.Value, name: str) -> ir.Value:
    """Return an attribute as a constant of the type of `x`; onnxruntime requires it."""
    value = view.attribute(name)
    if not isinstance(value, float):
        text = f"`{view.node.op_type}` has no `{name}`, which onnxruntime requires"
        raise MalformedNode("missing-attribute", text)
    return em.constant(np.array(value, _op(em, x).dtype.numpy()), name)


def _op(em: Emitter, x: ir.Value) -> Builder:
    return Builder(em, x.dtype or ir.DataType.UNDEFINED)
