"""Operators that exporters wrote while ONNX had none, and that ONNX has in several."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder, known_rank, only, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import MalformedNode, NodeView, counted_axis
from onnx_kvtool.symbolic.dims import dims_of

__all__ = [
    "c_dist",
    "complex_mul",
    "complex_mul_conj",
    "is_all_finite",
    "mat_mul_integer_16",
    "mul_integer",
    "reduce_sum_integer",
    "rfft",
    "unfold_tensor",
]

_D = ir.DataType


def c_dist(view: NodeView, em: Emitter) -> Replacement:
    """Write CDist as onnxruntime computes it: -2 A B' + |A|^2 + |B|^2, and Sqrt for `euclidean`.

    Refuses the other metrics of its documentation, of which onnxruntime has no kernel.
    """
    refuse_value(view, "metric", "sqeuclidean", "euclidean")
    a, b = view.required("A"), view.required("B")
    op = _op(em, a)
    minus_two = em.constant(np.array(-2, op.dtype.numpy()), "minus_two")
    turned = {"perm": [1, 0]}
    product = op("MatMul", op("Mul", a, minus_two), op("Transpose", b, attributes=turned))
    left, right = (reduce(em, "ReduceSum", op("Mul", x, x, hint="square"), [1]) for x in (a, b))
    total = op("Add", op("Add", product, left), op("Transpose", right, attributes=turned))
    total = op("Abs", total)
    return only(total if view.string("metric") == "sqeuclidean" else op("Sqrt", total))


def complex_mul(view: NodeView, em: Emitter) -> Replacement:
    """Write ComplexMul as Mul, Sub and Add of the parts, which the last axis holds."""
    return _complex_product(view, em, "Sub", "Add")


def complex_mul_conj(view: NodeView, em: Emitter) -> Replacement:
    """Write ComplexMulConj, whose second factor is conjugated, as Mul, Add and Sub of the parts."""
    return _complex_product(view, em, "Add", "Sub")


def _complex_product(view: NodeView, em: Emitter, real: str, imaginary: str) -> Replacement:
    op = _op(em, view.required("A"))
    (a, b), (c, d) = (
        em.multi(
            "Split",
            view.required(name),
            attributes={"axis": -1, "num_outputs": 2},
            dtypes=(op.dtype, op.dtype),
        )
        for name in "AB"
    )
    parts = (
        op(real, op("Mul", a, c), op("Mul", b, d), hint="real"),
        op(imaginary, op("Mul", b, c), op("Mul", a, d), hint="imaginary"),
    )
    return only(op("Concat", *parts, attributes={"axis": -1}))


def is_all_finite(view: NodeView, em: Emitter) -> Replacement:
    """Write IsAllFinite as IsNaN and IsInf, whose ones are counted over all inputs.

    Refuses `isinf_only` together with `isnan_only`.
    """
    wanted = [
        op_type
        for op_type, other in (("IsNaN", "isinf_only"), ("IsInf", "isnan_only"))
        if not view.integer(other)
    ]
    if not wanted:
        text = "`isinf_only` and `isnan_only` of `IsAllFinite` are both 1, expected one of them"
        raise Refusal("contrib-form", text)
    total: ir.Value | None = None
    op = Builder(em, _D.INT32)
    for value in view.node.inputs:
        assert value is not None
        found = [em.op(op_type, value, dtype=_D.BOOL) for op_type in wanted]
        either = found[0] if len(found) == 1 else em.op("Or", *found, dtype=_D.BOOL)
        count = op("ReduceSum", cast(em, either, _D.INT32), attributes={"keepdims": 0})
        total = count if total is None else op("Add", total, count)
    if total is None:
        raise MalformedNode("missing-input", "`IsAllFinite` has no inputs")
    zero = em.constant(np.zeros((), np.int32), "zero")
    return only(em.op("Equal", total, zero, dtype=_D.BOOL))


def mat_mul_integer_16(view: NodeView, em: Emitter) -> Replacement:
    """Write MatMulInteger16 as MatMul of int32.

    Refuses two factors of uint16: the type of the result is uint32 by the text, and int32 by the
    inference of onnxruntime, which has no kernel for them.
    """
    factors = view.required("A"), view.required("B")
    if all(x.dtype == _D.UINT16 for x in factors):
        raise Refusal(
            "contrib-form",
            "both inputs of `MatMulInteger16` are uint16, of which the type of the result is not "
            "certain",
        )
    return only(em.op("MatMul", *(cast(em, x, _D.INT32) for x in factors), dtype=_D.INT32))


def mul_integer(view: NodeView, em: Emitter) -> Replacement:
    """Write MulInteger as Mul of int32, of codes from which Sub takes their zero points."""
    op, factors = Builder(em, _D.INT32), []
    for name in "AB":
        number, zero = cast(em, view.required(name), _D.INT32), view.input(f"{name}_zero_point")
        factors.append(number if zero is None else op("Sub", number, cast(em, zero, _D.INT32)))
    return only(op("Mul", *factors))


def reduce_sum_integer(view: NodeView, em: Emitter) -> Replacement:
    """Write ReduceSumInteger as ReduceSum of int32, or of int64 that become uint32 for uint8."""
    data, keepdims, axes = view.required("data"), view.integer("keepdims"), view.attribute("axes")
    is_unsigned = data.dtype == _D.UINT8
    wide = cast(em, data, _D.INT64 if is_unsigned else _D.INT32)
    given = [int(axis) for axis in axes] if isinstance(axes, tuple) else []
    chosen = given or list(range(known_rank(view, data)))
    total = reduce(em, "ReduceSum", wide, chosen, keepdims=keepdims != 0)
    return only(cast(em, total, _D.UINT32 if is_unsigned else _D.INT32))


def rfft(view: NodeView, em: Emitter) -> Replacement:
    """Write Rfft as DFT-20 of the last axis, onesided, and of the other axes of the signal.

    Refuses `normalized` and both sides, which its documentation does not support.
    """
    refuse_value(view, "normalized", 0)
    refuse_value(view, "onesided", 1)
    x, count = view.required("X"), view.integer("signal_ndim")
    rank = known_rank(view, x)
    if not 1 <= count <= rank:
        text = f"`signal_ndim` of `Rfft` is {count}, expected 1 to {rank}, the rank of `{x.name}`"
        raise Refusal("contrib-form", text)
    y, op = unsqueeze(em, x, [rank]), _op(em, x)
    for axis in range(rank - 1, rank - 1 - count, -1):
        sides = {"onesided": int(axis == rank - 1)}
        y = op("DFT", y, None, em.constant(axis, "axis"), attributes=sides)
    return only(y)


def unfold_tensor(view: NodeView, em: Emitter) -> Replacement:
    """Write UnfoldTensor as Gather of the places of all windows, which Transpose puts last."""
    x, length, step = view.required("input"), view.integer("size"), view.integer("step")
    rank = known_rank(view, x)
    axis = counted_axis(view.integer("dim"), rank, "dim")
    if length < 1 or step < 1:
        raise MalformedNode(
            "attribute-value", f"`size` is {length} and `step` is {step}, expected 1 or more"
        )
    dim, inside = (dims_of(x) or ())[axis], np.arange(length, dtype=np.int64)
    if isinstance(dim, int):
        if dim < length:
            text = f"`size` of `UnfoldTensor` is {length}, expected at most {dim}, the size of axis"
            raise MalformedNode("attribute-value", f"{text} {axis}")
        first = np.arange(0, dim - length + 1, step, dtype=np.int64)
        places = em.constant(first[:, None] + inside, "places")
    else:
        end = em.op("Add", size(em, dim, x, axis), em.constant(1 - length))
        starts = em.op("Range", em.constant(0), end, em.constant(step))
        places = em.op("Add", unsqueeze(em, starts, [1]), em.constant(inside, "inside"))
    windows = _op(em, x)("Gather", x, places, attributes={"axis": axis})
    if axis == rank - 1:
        return only(windows)
    perm = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return only(_op(em, x)("Transpose", windows, attributes={"perm": perm}))


def _op(em: Emitter, x: ir.Value) -> Builder:
    return Builder(em, x.dtype or ir.DataType.UNDEFINED)
