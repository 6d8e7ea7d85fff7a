"""Arithmetic, products of matrices, and determinants."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    cast,
    formal,
    known_dims,
    known_type,
    looped,
    one_number,
    reduce,
    squeeze,
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
        bias = _along(em, bias, rank, 1)
        total = em.op("Add", total, bias, hint="with_bias")
    scale = _along(em, view.required("w_scale"), rank, 1)
    return _requantized(em, view, total, view.required("x_scale"), scale)


def distance(em: Emitter, value: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    """Return how far numbers of 8 bits are from their zero point, int32."""
    wide = cast(em, value, _INT32)
    if zero_point is None:
        return wide
    return em.op("Sub", wide, cast(em, zero_point, _INT32), hint="distance")


def quantized(
    em: Emitter, value: ir.Value, zero_point: ir.Value | None, dtype: ir.DataType
) -> ir.Value:
    """Return float32 numbers rounded, halves to even, with the zero point added and saturated."""
    result = rounded(em, value, _FLOAT)
    if zero_point is not None:
        result = em.op("Add", result, cast(em, zero_point, _FLOAT))
    result = em.op("Clip", result, min=float(dtype.min), max=float(dtype.max))
    return cast(em, result, dtype)


def _product(
    em: Emitter, a: ir.Value, b: ir.Value, of_a: ir.Value | None, of_b: ir.Value | None
) -> ir.Value:
    """Return the matrix product of distances from the zero points, int32."""
    left = distance(em, a, None if of_a is None else _per_row(em, of_a))
    return em.op("MatMul", left, distance(em, b, of_b), hint="product")


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
    cut_x, cut_w = _cuts(taps, op_type)
    if of_x is not None:
        of_x = em.op("Reshape", of_x, [1])
    if of_w is not None:
        of_w = _along(em, of_w, len(dims), 0)
    attributes: dict[str, AttributeValue] = {
        name: value for name in _WINDOW if (value := view.attribute(name)) is not None
    }
    total: ir.Value | None = None
    for factor_x, part_x in _parts(em, distance(em, x, of_x), cut_x):
        for factor_w, part_w in _parts(em, distance(em, w, of_w), cut_w):
            given = cast(em, part_x, _FLOAT), cast(em, part_w, _FLOAT)
            sums = em.op("Conv", *given, attributes=attributes)
            whole = cast(em, sums, _INT32)
            if (factor := factor_x * factor_w) > 1:
                whole = em.op("Mul", whole, [factor], hint="shifted")
            total = whole if total is None else em.op("Add", total, whole, hint="sum")
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
    )


def _parts(em: Emitter, value: ir.Value, cut: bool) -> list[tuple[int, ir.Value]]:
    """Return int32 numbers as parts by their factors; both parts have the sign of the number."""
    if not cut:
        return [(1, value)]
    upper = em.op("Div", value, [_BASE], hint="upper")
    whole = em.op("Mul", upper, [_BASE])
    return [(_BASE, upper), (1, em.op("Sub", value, whole, hint="lower"))]


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
    factor = em.op("Mul", cast(em, one, _FLOAT), cast(em, other, _FLOAT))
    factor = em.op("Div", factor, cast(em, scale, _FLOAT), hint="factor")
    value = em.op("Mul", cast(em, total, _FLOAT), factor, hint="scaled")
    return quantized(em, value, zero_point, dtype)


# IsInf, ThresholdedRelu and the (de)quantising operators of opsets 10 and 11, for older ones.


def lower_is_inf_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Compare with the largest numbers of the type."""
    x = view.required("X")
    dtype = known_type(x)
    bound = np.finfo(dtype.numpy()).max
    found = []
    for name, op_type, limit in (
        ("detect_positive", "Greater", bound),
        ("detect_negative", "Less", -bound),
    ):
        if view.integer(name):
            found.append(em.op(op_type, x, float(limit)))
    if not found:
        nothing = em.op("IsNaN", x)
        never = em.op("Not", nothing)
        return em.op("And", nothing, never)
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
    wide = cast(em, x, _FLOAT)
    scale = one_number(em, view.required("y_scale"), x)
    quotient = em.op("Div", wide, scale, hint="quotient")
    zero_point = None if zero_point is None else one_number(em, zero_point, x)
    return quantized(em, quotient, zero_point, dtype)


def lower_dynamic_quantize_linear_11(view: Rewritten, em: Emitter) -> Replacement:
    """Quantise by the range of the input and zero; the scale of nothing but zeros is 1.

    As runtimes have it: the function body of the schema gives a scale of 0.
    """
    op = em.op
    x = view.required("x")
    low, high = (
        op(bound, op(f"Reduce{bound}", x, keepdims=0), 0.0, hint=bound) for bound in ("Min", "Max")
    )
    span = op("Sub", high, low, hint="range")
    is_some = op("Greater", span, 0.0)
    scale = where(em, is_some, op("Div", span, 255.0), 1.0, "scale")
    place = op("Sub", 0.0, op("Div", low, scale), hint="place")
    zero_point = quantized(em, place, None, _D.UINT8)
    y = op("QuantizeLinear", x, scale, zero_point)
    return Replacement((y, scale, zero_point))


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
    wide = _D.DOUBLE if dtype == _D.DOUBLE else _D.FLOAT
    order, batch = product(em, data, dims, [len(dims) - 1]), range(len(dims) - 2)
    sizes = joined_sizes(em, data, dims, [batch, [len(dims) - 2], [len(dims) - 1]])
    matrices = em.op("Reshape", cast(em, data, wide), sizes, hint="matrices")
    result = _Elimination(em, wide, product(em, data, dims, batch), order).run(matrices)
    shape = joined_sizes(em, data, dims, [[axis] for axis in batch])
    return cast(em, em.op("Reshape", result, shape), dtype)


class _Elimination:
    """Elimination with a choice among the rows that were not chosen before.

    Args:
        em: Where to build.
        dtype: float32 or float64.
        count: Number of matrices: (1,), int64.
        order: Rows of each: (1,), int64.
    """

    def __init__(self, em: Emitter, dtype: ir.DataType, count: ir.Value, order: ir.Value) -> None:
        self._em, self._dtype, self._count, self._order = em, dtype, count, order
        self._rows = unsqueeze(em, count_up(em, order), [0])  # (1, n)
        self._first = em.op("Mul", count_up(em, count), order, hint="first_rows")  # (B,)

    def run(self, matrices: ir.Value) -> ir.Value:
        """Return the determinants of matrices: (B, n, n) to (B, 1)."""
        em, dtype = self._em, self._dtype
        one = ir.Tensor(np.ones(1, dtype.numpy()))
        zero = ir.Tensor(np.zeros(1, dtype.numpy()))
        single = em.op("Concat", self._count, [1], axis=0, hint="shape")
        whole = em.op("Concat", self._count, self._order, axis=0, hint="shape")
        start = em.op("ConstantOfShape", single, value=one)
        unused = em.op("ConstantOfShape", whole, value=zero)
        state = [formal(em, name, dtype, [None] * rank) for name, rank in _STATE]
        rounds = em.op("Reshape", self._order, [], hint="rounds")
        given = matrices, unused, start
        return looped(em, rounds, given, state, lambda t, go: [go, *self._step(t, *state)])[2]

    def _step(
        self, turn: ir.Value, matrices: ir.Value, used: ir.Value, found: ir.Value
    ) -> list[ir.Value]:
        """Eliminate the column `turn` of what is left of the matrices, (B, n, n).

        `used` is 1 for each row that was chosen, (B, n), and `found` the product so far, (B, 1).
        """
        em, op, dtype = self._em, self._em.op, self._dtype
        column = em.op("Gather", matrices, turn, axis=2)
        was_used = op("Greater", used, 0.5)
        size = where(em, was_used, -1, op("Abs", column), "size")
        chosen = em.op("ArgMax", size, axis=1, keepdims=1, hint="chosen")

        flat = em.op(
            "Reshape",
            matrices,
            em.op("Concat", [-1], self._order, axis=0),
            hint="rows",
        )
        number = em.op("Add", squeeze(em, chosen, [1]), self._first, hint="number")
        row = em.op("Gather", flat, number, axis=0, hint="row")
        pivot = unsqueeze(em, em.op("Gather", row, turn, axis=1), [1], "pivot")
        before = cast(em, op("Less", self._rows, chosen), dtype)
        passed = reduce(em, "ReduceSum", op("Mul", before, op("Sub", 1, used)), [1])
        pairs = op("Floor", op("Mul", passed, 0.5))
        odd = op("Sub", passed, op("Mul", pairs, 2))
        sign = op("Sub", 1, op("Mul", odd, 2))
        product = op("Mul", op("Mul", found, pivot), sign)

        is_chosen = cast(em, op("Equal", self._rows, chosen), dtype)
        used = op("Add", used, is_chosen)
        some = op("Or", op("Less", pivot, 0), op("Greater", pivot, 0))
        # Nothing is left in a column without a pivot, and the determinant is 0.
        divisor = op("Add", pivot, cast(em, op("Not", some), dtype))
        is_left = op("Less", used, 0.5)
        share = where(em, is_left, op("Div", column, divisor), 0, "share")
        taken = op("Mul", unsqueeze(em, share, [2]), unsqueeze(em, row, [1]))
        return [op("Sub", matrices, taken), used, product]


_STATE = (("matrices", 3), ("used", 2), ("determinant", 2))
"""What the Loop hands on, and the rank of each."""
