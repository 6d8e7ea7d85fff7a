"""Operators that describe or change shapes, and hand values on."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import Term, cast, dtype_of, known_dims
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import MalformedNode, counted_axis
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import from_front
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of, fixed_sizes

# Reshape-14 with `allowzero=1`, for opsets below 14.


INTEGERS = {dtype for dtype in ir.DataType if dtype.is_integer() and dtype.bitwidth >= 8}
_PLAIN = INTEGERS | FLOAT_TYPES - {ir.DataType.BFLOAT16} | {ir.DataType.BOOL}

_TO_THE_END = (1 << 31) - 1


def lower_reshape_14(view: Rewritten, em: Emitter) -> ir.Value:
    """Keep zeros of the shape as sizes, where Reshape below 14 would copy the input's size.

    Without a zero in the shape, or for data that is never empty, `allowzero` changes nothing.
    Otherwise an If decides at run time: a shape with a zero makes an empty result, which
    ConstantOfShape gives; every other shape goes to Reshape.

    Refuses an element type that ConstantOfShape or Reshape lacks at the target.
    """
    data, shape = view.operands("data", "shape")
    known = view.known(shape)
    if view.integer("allowzero") == 0 or (known is not None and (known != 0).all()):
        return em.op("Reshape", data, shape)
    return reshape_literally(em, data, shape, empty=not never_empty(data))


def never_empty(value: ir.Value) -> bool:
    """Return whether every dimension of `value` is known to be a positive number."""
    sizes = fixed_sizes(dims_of(value))
    return sizes is not None and 0 not in sizes


def reshape_literally(em: Emitter, data: ir.Value, shape: ir.Value, *, empty: bool) -> ir.Value:
    """Return `data` in the given shape, where a zero is a size.

    `shape` is (rank,), int64; one size may be -1 when none is 0. `empty`: it may contain a zero.

    Raises:
        Refusal: If that takes ConstantOfShape below opset 14 and it lacks the element type.
    """
    op = em.op
    dtype = dtype_of(data)
    if not empty or dims_of(shape) == (0,):  # a scalar is never empty
        return op("Reshape", data, shape)
    if em.opset >= 14:
        return op("Reshape", data, shape, allowzero=1)
    if dtype not in _PLAIN:
        raise Refusal(
            "element-type",
            f"`{data.name}` may be empty, and no operator makes an empty {dtype.name} value of a "
            f"computed shape at opset {em.opset}",
        )
    if not em.branches:
        return _filled(em, data, shape)
    product = op("ReduceProd", shape, keepdims=0)
    zero = op("Equal", product, 0)
    nothing = ir.tensor(np.zeros(1, dtype.numpy()))
    return op(
        "If",
        zero,
        then_branch=em.nested(
            lambda: [op("ConstantOfShape", shape, value=nothing)],
            hint="empty",
        ),
        else_branch=em.nested(lambda: [op("Reshape", data, shape)]),
    )


def _filled(em: Emitter, data: ir.Value, shape: ir.Value) -> ir.Value:
    """Return what an If would choose: a size of zero is one at first, and is cut away.

    The data has no elements then; as many as needed are put behind it.
    """
    given, zero = Term(em, shape), [0]
    empty = given.op("Equal", zero).cast(ir.DataType.INT64)
    sizes = given + empty
    none = given.op("ReduceProd", keepdims=1).op("Equal", zero).cast(ir.DataType.INT64)
    lacking = none * sizes.op("ReduceProd", keepdims=1)
    nothing = ir.tensor(np.zeros(1, dtype_of(data).numpy()))
    filling = lacking.op("ConstantOfShape", value=nothing)
    both = em.op("Concat", em.op("Reshape", data, [-1]), filling, axis=0)
    whole = em.op("Reshape", both, sizes)
    return em.op("Slice", whole, given * zero, ([1] - empty) * [_TO_THE_END])


# Axes that are known at run time only: as one flag per axis of a value of known rank.


def count_of(axes: ir.Value) -> int | None:
    """Return the number of axes in `axes`: (n,); None when the file does not fix it."""
    count = dim_of(axes, 0)
    return count if isinstance(count, int) and len(dims_of(axes) or ()) == 1 else None


def axis_marks(em: Emitter, axes: ir.Value, rank: int) -> ir.Value:
    """Return 1 for each axis that is among `axes`, else 0: (rank,), int64.

    `axes` is (n,) or (), each in -rank .. rank - 1; n may be 0. The rank is at least 1.
    """
    count = 1 if dims_of(axes) == () else count_of(axes)
    axes = cast(em, axes, ir.DataType.INT64)
    if em.opset < 11:  # the one axis of CumSum
        place = from_front(Term(em, em.op("Reshape", axes, [1])), [rank])
        return cast(em, em.op("Equal", np.arange(rank), place), ir.DataType.INT64)
    flat = em.op("Reshape", axes, [-1])  # (n,)
    # Mod counts negative axes from the end: its result has the sign of the divisor.
    places = em.op("Mod", flat, rank)
    if count is None:
        one = ir.tensor(np.ones(1, np.int64))
        ones = em.op("ConstantOfShape", em.op("Shape", places), value=one)
    else:
        ones = em.constant([1] * count, "ones")
    return em.op("ScatterElements", [0] * rank, places, ones)


def along_axis(
    view: Rewritten,
    em: Emitter,
    data: ir.Value,
    axis: ir.Value,
    apply: Callable[..., ir.Value],
) -> ir.Value:
    """Return what `apply` makes of the data along an axis, which may be known at run time only."""
    rank, known = len(known_dims(data)), view.known(axis)
    if not rank:
        raise MalformedNode("axis-out-of-range", f"`{data.name}` is a scalar, which has no axis")
    if (known is not None and known.size == 1) or rank == 1:
        return apply(data, 0 if known is None else counted_axis(int(known.ravel()[0]), rank))
    marks = axis_marks(em, axis, rank)
    for place in range(rank):
        data = switch(em, marks, place, data, functools.partial(apply, place=place))
    return data


def switch(
    em: Emitter,
    marks: ir.Value,
    axis: int,
    value: ir.Value,
    apply: Callable[[ir.Value], ir.Value],
    *,
    size: int | None = None,
) -> ir.Value:
    """Return `apply(value)` if `axis` is marked, else `value`, decided at run time by an If.

    Below opset 11, where both branches must have one shape, both are computed and the right one is
    sliced out. `apply` may change the size of the axis, and no other; `size` is the new one, None
    if it stays. `marks` is 1 for each axis that is marked, else 0: (rank,), int64.
    """
    if not em.branches:
        return _cut_out(em, marks, axis, value, apply(value), size)
    mark = em.op("Gather", marks, axis)
    chosen = cast(em, mark, ir.DataType.BOOL)
    marked = em.nested(lambda: [apply(value)])
    unmarked = em.nested(lambda: [value])
    result = em.op("If", chosen, then_branch=marked, else_branch=unmarked)
    if value.shape is not None and marked.outputs[0].shape == value.shape:
        result.shape = ir.Shape(value.shape)
    return result


def _cut_out(
    em: Emitter,
    marks: ir.Value,
    axis: int,
    value: ir.Value,
    other: ir.Value,
    size: int | None,
) -> ir.Value:
    """Return `other` if `axis` is marked, else `value`: rows of one behind the other."""
    op = em.op
    dims, place = dims_of(value), em.constant([axis], "axis")
    dim = dim_of(value, axis)
    if isinstance(dim, int):
        count = em.constant([dim], "count")
    else:
        count = op("Slice", op("Shape", value), place, [axis + 1])
    mark = Term(em, op("Gather", marks, place))
    start = mark * count
    length = start if size is None else mark if size == 1 else mark * [size]
    both = op("Concat", value, other, axis=axis)
    result = op("Slice", both, start, op("Add", count, length), place)
    if dims is not None:
        result.shape = ir.Shape(
            [None if i == axis and size is not None else d for i, d in enumerate(dims)]
        )
    return result


# Squeeze-13 and Unsqueeze-13 with axes that are known at run time only, for opsets below 13.


def lower_squeeze_13(view: Rewritten, em: Emitter) -> ir.Value:
    """Reshape to the sizes of the axes that are not named.

    Refuses an unknown rank, and axes whose number is unknown or zero: releases differ on whether
    an empty list drops nothing or every dimension of size 1.
    """
    data, axes = view.required("data"), view.input("axes")
    rank, count = _facts(data, axes)
    if axes is None or count == 0:
        raise Refusal("empty-axes", "an empty list of axes cannot be an attribute")
    kept = em.op("Equal", axis_marks(em, axes, rank), 0)
    shape = em.op("Compress", em.op("Shape", data), kept, axis=0)
    return reshape_literally(em, data, shape, empty=not never_empty(data))


def lower_unsqueeze_13(view: Rewritten, em: Emitter) -> ir.Value:
    """Reshape to the sizes of the data with ones between them.

    Each place of the result that is not named takes the next size of the data: its number is the
    count of such places before it.

    Refuses an unknown rank and an unknown number of axes.
    """
    data, axes = view.operands("data", "axes")
    rank, count = _facts(data, axes)
    if count == 0:
        return em.op("Identity", data)
    if rank == 0:
        return em.op("Reshape", data, [1] * count)
    marks = Term(em, axis_marks(em, axes, rank + count))  # (rank + count,)
    before = (1 - marks).op("CumSum", 0, exclusive=1)
    # The number past the last size is read at named places only, where it does not matter.
    inside = before < rank - 1
    sizes = em.op("Gather", em.op("Shape", data), inside.op("Where", before, rank - 1))
    shape = marks.cast(ir.DataType.BOOL).op("Where", 1, sizes).value
    return reshape_literally(em, data, shape, empty=not never_empty(data))


def _facts(data: ir.Value, axes: ir.Value | None) -> tuple[int, int]:
    """Return the rank of the data and the number of axes."""
    dims = dims_of(data)
    count = None if axes is None else count_of(axes)
    if dims is None or (axes is not None and count is None):
        what = f"the rank of `{data.name}`" if dims is None else "their number"
        raise Refusal(
            "dynamic-input",
            f"the axes are known at run time only, and {what} is unknown",
            help="make the axes constant, or declare the shapes",
        )
    return len(dims), count or 0


# Shape-15 with `start` and `end`, for opsets below 15, and Size for releases without it.


_END = 2**31 - 1
"""Beyond every rank; Slice clamps it."""


def lower_shape_15(view: Rewritten, em: Emitter) -> ir.Value:
    """Emit Slice(Shape(data), [start], [end]).

    Slice-10 clamps out-of-range ends and counts negative ones from the end exactly as Shape-15
    does with its attributes, and gives an empty result for start >= end.
    """
    start, end = view.integer("start"), view.attribute("end")
    last = end if isinstance(end, int) else _END
    shape = em.op("Shape", view.required("data"))
    return em.op("Slice", shape, em.constant([start], "start"), em.constant([last], "end"))


def lower_size_1(view: Rewritten, em: Emitter) -> ir.Value:
    """Emit ReduceProd(Shape(data)), which is 1 for a scalar: the product of nothing."""
    shape = em.op("Shape", view.required("data"))
    return em.op("ReduceProd", shape, keepdims=0)


# Identity-14 of sequences, for opsets 11 to 13.


def lower_identity_14(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Insert an element behind the last one and erase it again.

    Nothing is done for other types.
    """
    given = view.required("input")
    if not isinstance(given.type, ir.SequenceType):
        return None
    return passed(em, given)


def passed(em: Emitter, value: ir.Value) -> ir.Value:
    """Return a tensor or a sequence under another name."""
    dtype = dtype_of(value)
    if em.opset >= 14 or not isinstance(value.type, ir.SequenceType):
        result = em.op("Identity", value)
    else:
        filling = "" if dtype == ir.DataType.STRING else 0
        element = em.constant(np.array(filling, dtype.numpy()), "element")
        longer = em.op("SequenceInsert", value, element)
        longer.type = value.type
        result = em.op("SequenceErase", longer)
    result.type = value.type
    return result


# Constant-12 with a number, a string or a list of them, for opset 11.


def lower_constant_12(view: Rewritten, em: Emitter) -> ir.Value:
    """Write `value_int(s)`, `value_float(s)` or `value_string(s)` as the tensor they stand for.

    Refuses a Constant that holds neither a tensor nor one of these (a sparse tensor at 11 is
    legal and never comes here).
    """
    has_one = len(view.node.attributes) == 1
    tensor = const_tensor(view.node.outputs[0]) if has_one else None
    if tensor is None:
        text = "the Constant has no attribute that can be a tensor"
        raise MalformedNode("constant-form", text)
    return em.op("Constant", value=tensor)
