"""Reductions, ArgMax, ArgMin and Softmax."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.constants import constant_integers
from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import cast, dtype_of, known_dims, known_type, size, squeeze, where
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.dtypes import carrier_of, takes
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.reshape import (
    axis_marks,
    count_of,
    never_empty,
    reshape_literally,
    switch,
)
from onnx_kvtool.symbolic.dimensions import dims_of

# Reductions with axes from an input, or on bool, for opsets where they lack one or the other.
#
# ReduceMax and ReduceMin also become TopK, for runtimes that lose infinities in them.


_BOOL = ir.DataType.BOOL
_Axes = ir.Value | tuple[int, ...] | None

_EXTREMES = ("ReduceMax", "ReduceMin")

_OF_ONE = {"ReduceL2": "Abs"}
"""What a reduction makes of one number; where it is another one."""

_ROUNDED = {"ReduceL2": "a norm", "ReduceLogSumExp": "a logarithm", "ReduceMean": "a mean"}
"""Reductions that give no integers."""


def lower_reduce_20(view: Rewritten, em: Emitter) -> ir.Value:
    """Take the reductions that can be taken one axis at a time to an older form.

    ReduceSum, ReduceMean, ReduceProd, ReduceMax, ReduceMin, and of floats ReduceL2 and
    ReduceLogSumExp. The function bodies of the last two take the square and the exponential of each
    element, which may overflow, and the root of a float64 in float32.

    Constant axes become the attribute. Axes that are known at run time only become one If per
    axis of the data, which reduces that axis or leaves it; the dimensions are dropped at the end.
    No axes mean all of them, or with `noop_with_empty_axes` none, which makes an Identity, and of
    ReduceL2 an Abs.

    ReduceMax and ReduceMin of 8-bit integers are taken in int32 below opset 12.

    On bool, ReduceMax is whether any element is true, and ReduceMin whether none is false; both
    are counted as int64, so that an empty reduction gives false and true, as opset 20 defines.

    Refuses run-time axes when the rank is unknown, when their number is unknown and decides
    whether dimensions are dropped, and for several axes of integers where the result is rounded
    once, as a mean is.

    Where the release must not be given a ReduceMax or ReduceMin, or the target has this form of it
    and it is asked to go, it becomes one TopK for each axis; axes that are unknown are refused.
    """
    data = view.required("data")
    keepdims = view.integer("keepdims") != 0
    noop = view.integer("noop_with_empty_axes", 0) != 0
    axes: _Axes
    if "axes" in view.facts.attributes:
        axes = tuple(view.integers("axes"))
    else:
        axes = view.input("axes")
        known = view.known(axes)
        numbers = None if known is None else tuple(int(a) for a in known.ravel())
        if numbers is None:  # an emitted constant was no initializer when the folder met it
            numbers = constant_integers(axes)
        if numbers is not None:
            axes = numbers
        elif axes is not None and count_of(axes) == 0:
            axes = ()
    if not axes and not isinstance(axes, ir.Value):
        axes = () if noop else None
    op = view.node.op_type
    limits = view.context.limits
    is_limited = limits is not None and limits.problem(view.node, view.opset, view.context.folder)
    if op in _EXTREMES and (is_limited or em.opset >= 20):
        return _first_of_sorted(em, op, data, axes, keepdims)
    dtype, is_max = known_type(data), op == "ReduceMax"
    if op not in _EXTREMES or takes(op, 0, dtype, em.opset):
        return _reduce(em, op, data, axes, keepdims, noop)
    negated = dtype == _BOOL and not is_max  # none is false
    carrier = ir.DataType.INT64 if dtype == _BOOL else carrier_of(op, dtype, em.opset, 0)
    wide = cast(em, em.op("Not", data) if negated else data, carrier or dtype)
    wide.shape = data.shape
    found = _reduce(em, "ReduceSum" if dtype == _BOOL else op, wide, axes, keepdims, noop)
    if carrier is not None and dtype != _BOOL and not never_empty(data):
        # Of no elements it is the last number of the type, not of the carrier.
        least = int(dtype.min if is_max else dtype.max)
        is_beyond = em.op("Less" if is_max else "Greater", found, least)
        found = where(em, is_beyond, least, found)
    result = cast(em, found, dtype)
    return em.op("Not", result) if negated else result


def _first_of_sorted(
    em: Emitter,
    op: str,
    data: ir.Value,
    axes: _Axes,
    keepdims: bool,
) -> ir.Value:
    """Return the maximum or minimum along each axis as the first of one TopK; not of bool.

    An axis without elements fails at run time, where the reduction gives the lowest number.
    """
    dims, dtype = dims_of(data), dtype_of(data)
    if axes is None and dims is not None:
        axes = tuple(range(len(dims)))
    if not isinstance(axes, tuple) or dtype == _BOOL:
        what = "its element type is bool" if dtype == _BOOL else "its axes are unknown"
        raise Refusal(
            "dynamic-input",
            f"`{op}` cannot become TopK: {what}",
            help="make the axes constant, and declare the shape",
        )
    reduced = data
    for axis in axes:
        one, largest = em.constant([1], "one"), int(op == "ReduceMax")
        reduced, _ = em.multi("TopK", reduced, one, axis=axis, largest=largest, count=2)
    if not axes:
        return em.op("Identity", data)
    return reduced if keepdims else squeeze(em, reduced, axes)


def _reduce(
    em: Emitter,
    op: str,
    data: ir.Value,
    axes: _Axes,
    keepdims: bool,
    noop: bool,
) -> ir.Value:
    if axes == ():
        return em.op(_OF_ONE.get(op, "Identity"), data)
    as_input = em.opset >= (13 if op == "ReduceSum" else 18)
    if isinstance(axes, ir.Value) and not as_input:
        return _at_run_time(em, op, data, axes, keepdims, noop)
    attributes: dict[str, int | tuple[int, ...]] = {"keepdims": int(keepdims)}
    if not as_input:
        if isinstance(axes, tuple):
            attributes["axes"] = axes
        return em.op(op, data, attributes=attributes)
    if noop:
        attributes["noop_with_empty_axes"] = 1
    given = em.constant(axes, "axes") if isinstance(axes, tuple) else axes
    return em.op(op, data, given, attributes=attributes)


def _at_run_time(
    em: Emitter, op: str, data: ir.Value, axes: ir.Value, keepdims: bool, noop: bool
) -> ir.Value:
    dims, count = known_dims(data, "the axes are known at run time only, and "), count_of(axes)
    dtype = dtype_of(data)
    if op in _ROUNDED and count != 1 and not dtype.is_floating_point():
        raise Refusal(
            "dynamic-input",
            f"the axes are known at run time only, and {_ROUNDED[op]} of integers cannot be taken "
            "one axis at a time",
            help="make the axes constant",
        )
    if not dims:  # a reduction of one number over no axis
        return em.op(_OF_ONE.get(op, "Identity"), data)
    marks = axis_marks(em, axes, len(dims))
    if not count and not noop:  # there may be no axes, which means all
        marks = em.op("Where", em.op("Equal", em.op("Size", axes), 0), 1, marks)
        marks = em.op("Expand", marks, [len(dims)])
    reduced = data
    for axis in range(len(dims)):
        attributes = {"axes": [axis], "keepdims": 1}
        reduced = switch(
            em,
            marks,
            axis,
            reduced,
            lambda value, attributes=attributes: em.op(  # type: ignore[misc]
                op, value, attributes=attributes
            ),
            size=1,
        )
    if noop and op in _OF_ONE:  # there may have been no axis, and more than once is as once
        reduced = em.op(_OF_ONE[op], reduced)
    if keepdims:
        return reduced
    if count == len(dims) and not em.branches:
        return em.op("Reshape", reduced, [])
    kept = em.op("Equal", marks, 0)
    shape = em.op("Compress", em.op("Shape", reduced), kept, axis=0)
    may_be_empty = not never_empty(data)
    if count and may_be_empty and not em.branches:
        # Below opset 10 the rank of what is cut has to be known. Not where the shape goes straight
        # to a Reshape: onnxruntime 1.32 takes the one of the shape for one of the data.
        shape = em.op("Reshape", shape, [len(dims) - count])
    return reshape_literally(em, reduced, shape, empty=may_be_empty)


# ArgMax-12 and ArgMin-12 with `select_last_index`, for opset 11.


_BEFORE_FIRST = -(2**31)
"""An end before every index, so that a Slice with step -1 takes the first element too."""


def lower_arg_max_min_12(view: Rewritten, em: Emitter) -> ir.Value:
    """Find the first index from behind and count it from the front.

    index = size - 1 - ArgMax(data reversed along the axis)
    """
    data, axis = view.required("data"), view.integer("axis")
    attributes = {"axis": axis, "keepdims": view.integer("keepdims")}
    if view.integer("select_last_index") == 0:
        return em.op(view.node.op_type, data, attributes=attributes)
    start, end = em.constant([-1], "last"), em.constant([_BEFORE_FIRST], "end")
    turned = em.op("Slice", data, start, end, [axis], [-1])
    found = em.op(view.node.op_type, turned, attributes=attributes)
    last = em.op("Sub", size(em, data, axis), 1)
    return em.op("Sub", last, found)


# Softmax-13, LogSoftmax-13 and Hardmax-13, for opsets below 13.


def lower_softmax_13(view: Rewritten, em: Emitter) -> ir.Value:
    """Work on the last axis, where both versions mean the same, with Transposes around if needed.

    Below 13 the operator flattens its input to two dimensions at `axis`; from 13 on it works along
    the one axis. On the last axis the results are equal.

    Refuses an axis that is not the last one for certain when the rank is unknown.
    """
    data, axis = view.required("input"), view.integer("axis")
    rank = 0 if axis == -1 else len(known_dims(data, f"`axis` is {axis} and "))
    if axis in (-1, rank - 1):
        return em.op(view.node.op_type, data, axis=-1)
    if not -rank <= axis < rank:
        raise MalformedNode("axis-out-of-range", f"`axis` is {axis} for a rank of {rank}")
    swap = list(range(rank))
    swap[axis % rank], swap[-1] = swap[-1], swap[axis % rank]
    turned = em.op("Transpose", data, perm=swap)
    result = em.op(view.node.op_type, turned, axis=-1)
    return em.op("Transpose", result, perm=swap)
