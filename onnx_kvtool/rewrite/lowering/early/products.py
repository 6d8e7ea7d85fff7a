"""Products and convolutions of quantised numbers, of opset 10, for opset 9: all sums are exact."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import element_type, known_rank
from onnx_kvtool.rewrite.lowering.early.numbers import rounded
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = [
    "distance",
    "lower_conv_integer_10",
    "lower_mat_mul_integer_10",
    "lower_q_linear_conv_10",
    "lower_q_linear_mat_mul_10",
    "quantized",
]

_D = ir.DataType
_INT32, _FLOAT = _D.INT32, _D.FLOAT

_MOST = 255
"""The largest distance of a number of 8 bits from a zero point of its type."""

_BASE = 16
"""Where such a distance is cut in two; neither part is above 15."""

_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def lower_mat_mul_integer_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Multiply the distances from the zero points, in int32.

    A zero point of several numbers is one for each row of A, or column of B.
    """
    view = NodeView(node, context.opset_of(node))
    zero_points = view.input("a_zero_point"), view.input("b_zero_point")
    return Replacement((_product(em, view.required("A"), view.required("B"), *zero_points),))


def lower_q_linear_mat_mul_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Multiply the distances from the zero points, in int32, and quantise the sums.

    A scale and a zero point of several numbers is one for each row of `a`, or column of `b`.

    Refuses several numbers for the result, of which the text does not say what they belong to.
    """
    view = NodeView(node, context.opset_of(node))
    zero_points = view.required("a_zero_point"), view.required("b_zero_point")
    a, b = view.required("a"), view.required("b")
    total = _product(em, a, b, *zero_points)
    scales = _per_row(em, view.required("a_scale")), view.required("b_scale")
    result = _requantized(em, view, total, *scales)
    if all(len(dims_of(value) or (1, 1)) == 1 for value in (a, b)):
        # Scales in vectors made one of the product of vectors, which is a scalar.
        scalar = em.constant([], "scalar")
        result = em.op("Reshape", result, scalar, dtype=result.dtype or _D.UNDEFINED)
    return Replacement((result,))


def lower_conv_integer_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Convolve the distances from the zero points in float32, of which no sum is beyond 24 bits.

    Where sums of whole products might be, the distances are cut in two, and their parts convolved
    with each other.

    Refuses weights of unknown shape.
    """
    view = NodeView(node, context.opset_of(node))
    zero_points = view.input("x_zero_point"), view.input("w_zero_point")
    return Replacement((_convolved(em, view, "ConvInteger", *zero_points),))


def lower_q_linear_conv_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Convolve the distances from the zero points as for ConvInteger, and quantise the sums.

    Refuses weights of unknown shape.
    """
    view = NodeView(node, context.opset_of(node))
    zero_points = view.required("x_zero_point"), view.required("w_zero_point")
    total = _convolved(em, view, "QLinearConv", *zero_points)
    rank = len(known_rank(view.required("w"), "QLinearConv", 10))
    bias = view.input("B")
    if bias is not None:
        bias = _along(em, bias, rank, 1)
        total = em.op("Add", total, bias, dtype=_INT32, hint="with_bias")
    scale = _along(em, view.required("w_scale"), rank, 1)
    return Replacement((_requantized(em, view, total, view.required("x_scale"), scale),))


def distance(em: Emitter, value: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    """Return how far numbers of 8 bits are from their zero point, int32."""
    wide = cast(em, value, _INT32)
    if zero_point is None:
        return wide
    return em.op("Sub", wide, cast(em, zero_point, _INT32), dtype=_INT32, hint="distance")


def quantized(
    em: Emitter, value: ir.Value, zero_point: ir.Value | None, dtype: ir.DataType
) -> ir.Value:
    """Return float32 numbers rounded, halves to even, with the zero point added and saturated."""
    result = rounded(em, value, _FLOAT)
    if zero_point is not None:
        result = em.op("Add", result, cast(em, zero_point, _FLOAT), dtype=_FLOAT)
    limits = {"min": float(dtype.min), "max": float(dtype.max)}
    result = em.op("Clip", result, attributes=limits, dtype=_FLOAT)
    return cast(em, result, dtype)


def _product(
    em: Emitter, a: ir.Value, b: ir.Value, of_a: ir.Value | None, of_b: ir.Value | None
) -> ir.Value:
    """Return the matrix product of distances from the zero points, int32."""
    left = distance(em, a, None if of_a is None else _per_row(em, of_a))
    return em.op("MatMul", left, distance(em, b, of_b), dtype=_INT32, hint="product")


def _per_row(em: Emitter, value: ir.Value) -> ir.Value:
    """Return scales or zero points of a left operand such that each stands before its row."""
    dims = known_rank(value, "a product of quantised numbers", 10)
    if len(dims) != 1 or dims[0] == 1:
        return value
    return em.op("Unsqueeze", value, attributes={"axes": [1]}, dtype=value.dtype or _D.UNDEFINED)


def _along(em: Emitter, value: ir.Value, rank: int, axis: int) -> ir.Value:
    """Return one number, or one for each element along an axis, such that it is broadcast so."""
    dims = dims_of(value)
    if dims is not None and all(dim == 1 for dim in dims):
        return value
    shape = [1] * rank
    shape[axis] = -1
    return em.op("Reshape", value, em.constant(shape, "shape"), dtype=value.dtype or _D.UNDEFINED)


def _convolved(
    em: Emitter, view: NodeView, op_type: str, of_x: ir.Value | None, of_w: ir.Value | None
) -> ir.Value:
    """Return the convolution of distances from the zero points, int32."""
    x, w = view.required("x"), view.required("w")
    dims = known_rank(w, op_type, 10)
    taps = [dim for dim in dims[1:] if isinstance(dim, int)]
    if len(taps) != len(dims) - 1:
        raise Refusal(
            "unknown-dimension",
            f"the shape of `{w.name}` is unknown, and how many products {op_type} adds up",
            help="declare the shape of the weights",
            lowest_opset=10,
        )
    cut_x, cut_w = _cuts(math.prod(taps), op_type)
    if of_x is not None:
        of_x = em.op("Reshape", of_x, em.constant([1], "one"), dtype=of_x.dtype or _D.UNDEFINED)
    if of_w is not None:
        of_w = _along(em, of_w, len(dims), 0)
    attributes: dict[str, AttributeValue] = {
        name: value for name in _WINDOW if (value := view.attribute(name)) is not None
    }
    total: ir.Value | None = None
    for factor_x, part_x in _parts(em, distance(em, x, of_x), cut_x):
        for factor_w, part_w in _parts(em, distance(em, w, of_w), cut_w):
            given = cast(em, part_x, _FLOAT), cast(em, part_w, _FLOAT)
            sums = em.op("Conv", *given, attributes=attributes, dtype=_FLOAT)
            whole = cast(em, sums, _INT32)
            if (factor := factor_x * factor_w) > 1:
                by = em.constant(np.array([factor], np.int32), "factor")
                whole = em.op("Mul", whole, by, dtype=_INT32, hint="shifted")
            total = whole if total is None else em.op("Add", total, whole, dtype=_INT32, hint="sum")
    assert total is not None
    return total


def _cuts(taps: int, op_type: str) -> tuple[bool, bool]:
    """Return whether inputs and weights are cut in two, so that float32 holds every sum."""
    for cuts in ((False, False), (False, True), (True, True)):
        largest = math.prod(_BASE - 1 if cut else _MOST for cut in cuts)
        if taps * largest <= 2**24:
            return cuts
    raise Refusal(
        "too-large",
        f"{op_type} adds up {taps} products, more than are exact in float32",
        lowest_opset=10,
    )


def _parts(em: Emitter, value: ir.Value, cut: bool) -> list[tuple[int, ir.Value]]:
    """Return int32 numbers as parts by their factors; both parts have the sign of the number."""
    if not cut:
        return [(1, value)]
    base = em.constant(np.array([_BASE], np.int32), "base")
    upper = em.op("Div", value, base, dtype=_INT32, hint="upper")
    whole = em.op("Mul", upper, base, dtype=_INT32)
    return [(_BASE, upper), (1, em.op("Sub", value, whole, dtype=_INT32, hint="lower"))]


def _requantized(
    em: Emitter, view: NodeView, total: ir.Value, one: ir.Value, other: ir.Value
) -> ir.Value:
    """Return sums of products in the scale of the result.

    Args:
        em: Where to build.
        view: The node.
        total: The sums, int32.
        one: Scale of one operand, broadcast to the sums.
        other: That of the other one.
    """
    scale, zero_point = view.required("y_scale"), view.required("y_zero_point")
    for value in (scale, zero_point):
        if any(dim != 1 for dim in known_rank(value, view.node.op_type, 10)):
            raise Refusal(
                "not-one-number",
                f"`{value.name}` may be several numbers, and what each belongs to is not said",
                lowest_opset=10,
            )
    dtype = element_type(zero_point, view.node.op_type, 10)
    factor = em.op("Mul", cast(em, one, _FLOAT), cast(em, other, _FLOAT), dtype=_FLOAT)
    factor = em.op("Div", factor, cast(em, scale, _FLOAT), dtype=_FLOAT, hint="factor")
    value = em.op("Mul", cast(em, total, _FLOAT), factor, dtype=_FLOAT, hint="scaled")
    return quantized(em, value, zero_point, dtype)
