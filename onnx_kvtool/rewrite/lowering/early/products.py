"""Arithmetic, products of matrices, and determinants."""

from __future__ import annotations

import functools
import math
import operator

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    computed_in,
    formal,
    known_dims,
    known_type,
    looped,
    one_number,
    squeeze,
    terms,
    unsqueeze,
    where,
)
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import (
    count_up,
    joined_sizes,
    product,
)
from onnx_kvtool.rewrite.lowering.early.numbers import rounded
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.dimensions import product as product_of

# Products and convolutions of quantised numbers, of opset 10, for opset 9: all sums are exact.


_D = ir.DataType
_INT32 = ir.DataType.INT32
_FLOAT = ir.DataType.FLOAT

_MOST = 255
"""The largest distance of a number of 8 bits from a zero point of its type."""

_BASE = 16
"""Where such a distance is cut in two; neither part is above 15."""

_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def lower_mat_mul_integer_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Multiply the distances from the zero points, in int32.

    A zero point of several numbers is one for each row of A, or column of B.
    """
    zero_points = view.input("a_zero_point"), view.input("b_zero_point")
    return _product(em, view.required("A"), view.required("B"), *zero_points)


def lower_q_linear_mat_mul_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Multiply the distances from the zero points, in int32, and quantise the sums.

    A scale and a zero point of several numbers is one for each row of `a`, or column of `b`.

    Refuses several numbers for the result: the text does not say what they belong to.
    """
    zero_points = view.required("a_zero_point"), view.required("b_zero_point")
    a, b = view.operands("a", "b")
    total = _product(em, a, b, *zero_points)
    scales = _per_row(em, view.required("a_scale")), view.required("b_scale")
    result = _requantized(em, view, total, *scales)
    if all(len(dims_of(value) or (1, 1)) == 1 for value in (a, b)):
        # Scales in vectors made one of the product of vectors, which is a scalar.
        result = em.op("Reshape", result, [])
    return result


def lower_conv_integer_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Convolve the distances from the zero points in float32: no sum is beyond 24 bits.

    Where sums of whole products might be, the distances are cut in two, and their parts convolved
    with each other.

    Refuses weights of unknown shape.
    """
    zero_points = view.input("x_zero_point"), view.input("w_zero_point")
    return _convolved(em, view, "ConvInteger", *zero_points)


def lower_q_linear_conv_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Convolve the distances from the zero points as for ConvInteger, and quantise the sums.

    Refuses weights of unknown shape.
    """
    zero_points = view.required("x_zero_point"), view.required("w_zero_point")
    total = _convolved(em, view, "QLinearConv", *zero_points)
    rank = len(known_dims(view.required("w")))
    bias = view.input("B")
    if bias is not None:
        total = em.op("Add", total, _along(em, bias, rank, 1))
    scale = _along(em, view.required("w_scale"), rank, 1)
    return _requantized(em, view, total, view.required("x_scale"), scale)


def distance(em: Emitter, value: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    """Return how far numbers of 8 bits are from their zero point, int32."""
    wide = cast(em, value, _INT32)
    return wide if zero_point is None else em.op("Sub", wide, cast(em, zero_point, _INT32))


def quantized(value: Term, zero_point: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return float32 numbers rounded, halves to even, with the zero point added and saturated."""
    result = rounded(value, _FLOAT)
    if zero_point is not None:
        result += cast(value.em, zero_point, _FLOAT)
    result = result.op("Clip", min=float(dtype.min), max=float(dtype.max))
    return result.cast(dtype).value


def _product(
    em: Emitter, a: ir.Value, b: ir.Value, of_a: ir.Value | None, of_b: ir.Value | None
) -> ir.Value:
    """Return the matrix product of distances from the zero points, int32."""
    left = distance(em, a, None if of_a is None else _per_row(em, of_a))
    return em.op("MatMul", left, distance(em, b, of_b))


def _per_row(em: Emitter, value: ir.Value) -> ir.Value:
    """Return scales or zero points of a left operand such that each stands before its row."""
    dims = known_dims(value)
    if len(dims) != 1 or dims[0] == 1:
        return value
    return em.op("Unsqueeze", value, axes=[1])


def _along(em: Emitter, value: ir.Value, rank: int, axis: int) -> ir.Value:
    """Return one number, or one for each element along an axis, such that it is broadcast so."""
    dims = dims_of(value)
    if dims is not None and all(dim == 1 for dim in dims):
        return value
    shape = [1] * rank
    shape[axis] = -1
    return em.op("Reshape", value, shape)


def _convolved(
    em: Emitter, view: NodeView, op_type: str, of_x: ir.Value | None, of_w: ir.Value | None
) -> ir.Value:
    """Return the convolution of distances from the zero points, int32."""
    x, w = view.operands("x", "w")
    dims = known_dims(w)
    taps = product_of(dims[1:])
    if taps is None:
        raise Refusal(
            "unknown-dimension",
            f"the shape of `{w.name}` is unknown, and how many products {op_type} adds up",
            help="declare the shape of the weights",
        )
    for cut_x, cut_w in ((False, False), (False, True), (True, True)):
        if taps * math.prod(_BASE - 1 if cut else _MOST for cut in (cut_x, cut_w)) <= 2**24:
            break  # float32 holds every sum
    else:
        text = f"{op_type} adds up {taps} products, more than are exact in float32"
        raise Refusal("too-large", text)
    if of_x is not None:
        of_x = em.op("Reshape", of_x, [1])
    if of_w is not None:
        of_w = _along(em, of_w, len(dims), 0)
    attributes: dict[str, AttributeValue] = {
        name: value for name in _WINDOW if (value := view.attribute(name)) is not None
    }
    sums = []
    for factor_x, part_x in _parts(Term(em, distance(em, x, of_x)), cut_x):
        for factor_w, part_w in _parts(Term(em, distance(em, w, of_w)), cut_w):
            given = part_x.cast(_FLOAT)
            whole = given.op("Conv", part_w.cast(_FLOAT), attributes=attributes).cast(_INT32)
            factor = factor_x * factor_w
            sums.append(whole * [factor] if factor > 1 else whole)
    return functools.reduce(operator.add, sums).value


def _parts(value: Term, cut: bool) -> list[tuple[int, Term]]:
    """Return int32 numbers as parts by their factors; both parts have the sign of the number."""
    if not cut:
        return [(1, value)]
    upper = value / [_BASE]
    return [(_BASE, upper), (1, value - upper * [_BASE])]


def _requantized(
    em: Emitter, view: NodeView, total: ir.Value, one: ir.Value, other: ir.Value
) -> ir.Value:
    """Return sums of products in the scale of the result."""
    scale, zero_point = view.operands("y_scale", "y_zero_point")
    for value in (scale, zero_point):
        if any(dim != 1 for dim in known_dims(value)):
            raise Refusal(
                "not-one-number",
                f"`{value.name}` may have several elements, and it is unknown what each applies to",
            )
    dtype = known_type(zero_point)
    first, second, last, sums = (x.cast(_FLOAT) for x in terms(em, one, other, scale, total))
    return quantized(sums * (first * second / last), zero_point, dtype)


# IsInf, ThresholdedRelu and the (de)quantising operators of opsets 10 and 11, for older ones.


def lower_is_inf_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Compare with the largest numbers of the type."""
    x = view.required("X")
    dtype = known_type(x)
    bound = float(np.finfo(dtype.numpy()).max)
    found = []
    if view.integer("detect_positive"):
        found.append(em.op("Greater", x, bound))
    if view.integer("detect_negative"):
        found.append(em.op("Less", x, -bound))
    if not found:
        nothing = Term(em, x).op("IsNaN")
        return (nothing & ~nothing).value
    return found[0] if len(found) == 1 else em.op("Or", *found)


def lower_thresholded_relu_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Choose between the input and zero."""
    x, alpha = view.required("X"), view.real("alpha")
    known_type(x)
    return where(em, em.op("Greater", x, alpha), x, 0.0)


def lower_dequantize_linear_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Multiply the distance from the zero point, in int32, with the scale.

    One number in a vector becomes a scalar where the input is one, or may be.
    """
    x = view.required("x")
    zero_point, scale = view.input("x_zero_point"), one_number(em, view.required("x_scale"), x)
    far = distance(em, x, None if zero_point is None else one_number(em, zero_point, x))
    return em.op("Mul", cast(em, far, _FLOAT), scale)


def lower_quantize_linear_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Round the quotient to the nearest even number, add the zero point and clip to the type."""
    x = view.required("x")
    zero_point = view.input("y_zero_point")
    dtype = _D.UINT8 if zero_point is None else known_type(zero_point)
    quotient = Term(em, x).cast(_FLOAT) / one_number(em, view.required("y_scale"), x)
    zero_point = None if zero_point is None else one_number(em, zero_point, x)
    return quantized(quotient, zero_point, dtype)


def lower_dynamic_quantize_linear_11(view: Rewritten, em: Emitter) -> Replacement:
    """Quantise by the range of the input and zero; the scale of nothing but zeros is 1.

    As runtimes have it: the function body of the schema gives a scale of 0.
    """
    x = Term(em, view.required("x"))
    low, high = (x.op(f"Reduce{bound}", keepdims=0).op(bound, 0.0) for bound in ("Min", "Max"))
    span = high - low
    scale = (span > 0.0).where(span / 255.0, 1.0)
    zero_point = quantized(0.0 - low / scale, None, _D.UINT8)
    y = x.op("QuantizeLinear", scale, zero_point)
    return Replacement((y.value, scale.value, zero_point))


# Det-11, for opset 10.


def lower_det_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Eliminate column after column in a Loop, by the row with the largest element in it.

    The determinant is the product of these elements, turned around for each odd number of rows
    that a chosen one passes. float16 is computed in float32.

    Refuses an unknown rank.
    """
    data = view.required("X")
    dtype = known_type(data)
    dims = known_dims(data)
    if len(dims) < 2:
        raise Refusal("unknown-rank", f"`{data.name}` is no matrix")
    wide = computed_in(dtype)
    order, batch = product(em, data, dims, [len(dims) - 1]), range(len(dims) - 2)
    sizes = joined_sizes(em, data, dims, [batch, [len(dims) - 2], [len(dims) - 1]])
    matrices = Term(em, cast(em, data, wide)).op("Reshape", sizes)
    result = _eliminated(matrices, wide, product(em, data, dims, batch), order)
    shape = joined_sizes(em, data, dims, [[axis] for axis in batch])
    return result.op("Reshape", shape).cast(dtype).value


def _eliminated(matrices: Term, dtype: ir.DataType, count: Term, order: Term) -> Term:
    """Return the determinants of matrices, (B, n, n), by elimination: (B, 1).

    Each column chooses among the rows that were not chosen before. `count` is B, `order` n: (1,).
    """
    em = matrices.em
    rows = count_up(em, order).then(unsqueeze, [0])  # (1, n)
    begins = count_up(em, count) * order  # (B,)
    start, unused = (
        count.op("Concat", other, axis=0).op(
            "ConstantOfShape", value=ir.Tensor(np.full(1, number, dtype.numpy()))
        )
        for other, number in (([1], 1), (order, 0))
    )
    # What is left of the matrices; 1 for each row that was chosen, (B, n); the product, (B, 1).
    state = [formal(em, name, dtype, [None] * rank) for name, rank in _STATE]
    left, used, found = terms(em, *state)

    def eliminate(turn: ir.Value, goes: ir.Value) -> list[ir.Value]:
        column = left.op("Gather", turn, axis=2)
        size = (used > 0.5).where(-1, abs(column))
        chosen = size.op("ArgMax", axis=1, keepdims=1)

        flat = left.op("Reshape", em.op("Concat", [-1], order, axis=0))
        row = flat.op("Gather", chosen.then(squeeze, [1]) + begins, axis=0)
        pivot = row.op("Gather", turn, axis=1).then(unsqueeze, [1])
        before = (rows < chosen).cast(dtype)
        passed = (before * (1 - used)).reduce("ReduceSum", [1])
        odd = passed - (passed * 0.5).op("Floor") * 2
        product = found * pivot * (1 - odd * 2)

        taken = used + rows.op("Equal", chosen).cast(dtype)
        some = (pivot < 0) | (pivot > 0)
        # Nothing is left in a column without a pivot, and the determinant is 0.
        share = (taken < 0.5).where(column / (pivot + (~some).cast(dtype)), 0)
        less = left - share.then(unsqueeze, [2]) * row.then(unsqueeze, [1])
        return [goes, less.value, taken.value, product.value]

    rounds = order.op("Reshape", []).value
    given = [matrices.value, unused.value, start.value]
    results = looped(em, rounds, given, state, eliminate)
    return Term(em, results[2])


_STATE = (("matrices", 3), ("used", 2), ("determinant", 2))
"""What the Loop hands on, and the rank of each."""
