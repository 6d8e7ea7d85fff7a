"""Split, Pad, Trilu and GatherND."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.words import counted
from onnx_kvtool.emit.emitter import Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    again,
    dtype_of,
    known_dims,
    known_type,
    positions,
    size,
    split,
    where,
)
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# Split-18 with `num_outputs`, for opsets below 18, and run-time sizes, below 13.


def lower_split_18(view: Rewritten, em: Emitter) -> Replacement:
    """Give Split its sizes: ceil(size / num_outputs) each, the rest for the last output.

    The sizes are an attribute below opset 13 and an input from 13 on, where they are computed at
    run time if the dimension is not a number. Sizes that are known at run time only become one
    Slice per output below 13.

    Refuses a Split that gives both `num_outputs` and `split`, or more outputs than there are.
    """
    data, axis, count = view.required("input"), view.integer("axis"), len(view.node.outputs)
    given = view.input("split") if len(view.facts.inputs) > 1 else None
    declared = view.attribute("num_outputs") if "num_outputs" in view.facts.attributes else None
    if given is not None and declared is None:
        return Replacement(_slices(em, data, given, axis, count))
    if given is not None or declared != count:
        raise MalformedNode(
            "bad-split",
            f"`num_outputs` is {declared} with {counted(count, 'output')}, or `split` is given too",
        )
    size = dim_of(data, axis)
    if isinstance(size, int):
        return Replacement(split(em, data, _sizes(size, count), axis))
    whole = Term(em, data).op("Shape").op("Gather", [axis])  # (1,)
    each = whole.op("Add", [count - 1]) / [count]
    rest = whole - each * [count - 1]
    computed = em.op("Concat", *[each] * (count - 1), rest, axis=0)
    if em.opset < 13:
        return Replacement(_slices(em, data, computed, axis, count))
    return Replacement(em.multi("Split", data, computed, axis=axis, count=count))


def _slices(
    em: Emitter, data: ir.Value, sizes: ir.Value, axis: int, count: int
) -> tuple[ir.Value, ...]:
    """Return the parts of `data` of the given sizes: (count,), which add up to the dimension."""
    end: Operand = [0]
    parts = []
    for index in range(count):
        size = em.op("Gather", sizes, [index])  # (1,)
        start, end = end, em.op("Add", end, size)
        parts.append(em.op("Slice", data, start, end, [axis]))
    return tuple(parts)


def _sizes(size: int, count: int) -> list[int]:
    each = -(-size // count)
    sizes = [each] * (count - 1) + [size - each * (count - 1)]
    if sizes[-1] < 0:
        raise MalformedNode(
            "bad-split",
            f"{counted(size, 'element')} cannot be split into {counted(count, 'part')} of {each}",
        )
    return sizes


# Pad-18 with `axes`, for opsets below 18, and `mode=wrap`, for opsets below 19.


def lower_pad_19(view: Rewritten, em: Emitter) -> ir.Value | Replacement:
    """Spread the pads of the given axes over all axes, zero elsewhere; gather what wraps.

    pads of all axes = ScatterElements(zeros (2 * rank,), positions of the given axes, pads)
    wrap, on each axis: Gather(data, Mod(Range(-begin, size + end), size))

    Refuses an unknown rank, and an element type or a mode that the target lacks.
    """
    data, pads, mode = view.required("data"), view.required("pads"), view.string("mode")
    axes = view.input("axes") if len(view.facts.inputs) > 3 else None
    wraps = mode == "wrap" and em.opset < 19
    if axes is not None or wraps:
        lacking = "axes" if axes is not None else "mode=wrap"
        rank = len(known_dims(data, f"`{lacking}` is not in Pad at opset {em.opset}, and "))
        if axes is not None and (em.opset < 18 or wraps):
            pads, axes = pads_of_all_axes(em, view.context.folder, pads, axes, rank), None
        if wraps:
            return _wrapped(view, em, data, pads, rank)
    return again(em, view.node, [data, pads, view.input("constant_value"), axes])


def pads_of_all_axes(
    em: Emitter, folder: ConstantFolder, pads: ir.Value, axes: ir.Value, rank: int
) -> ir.Value:
    """Return the pads of all axes of a value, zero for those that `axes` does not name.

    (2 * n,) pads of (n,) axes, which may be negative, become (2 * rank,), int64: first all
    beginnings, then all ends.
    """
    numbers, named = folder.integers(pads), folder.integers(axes)
    if numbers is not None and named is not None:
        whole = np.zeros((2, rank), np.int64)
        whole[:, named.ravel() % rank] = numbers.reshape(2, -1)
        return em.constant(whole.ravel(), "pads")
    begin = Term(em, axes).cast(ir.DataType.INT64) % rank  # negative axes count from the end
    places = begin.op("Concat", begin + rank, axis=0)
    return em.op("ScatterElements", [0] * 2 * rank, places, pads)


def _wrapped(view: Rewritten, em: Emitter, data: ir.Value, pads: ir.Value, rank: int) -> ir.Value:
    op, known = em.op, view.known(pads)
    result = data
    for axis in range(rank):
        if known is not None and not known[axis] and not known[axis + rank]:
            continue
        length = size(em, data, axis)
        begin, end = (op("Gather", pads, place) for place in (axis, axis + rank))
        index = op("Range", op("Neg", begin), op("Add", length, end), 1)
        # Mod has the sign of the divisor: never negative.
        result = op("Gather", result, op("Mod", index, length), axis=axis)
    return op("Identity", data) if result is data else result


# Trilu-14, for opsets below 14.


_BOOL = ir.DataType.BOOL


def lower_trilu_14(view: Rewritten, em: Emitter) -> ir.Value:
    """Choose between the input and zero by comparing columns with rows.

    upper: kept where column >= row + k;   lower: kept where column <= row + k

    Refuses strings and complex numbers, which have no zero to choose.
    """
    data, k, upper = view.required("input"), view.input("k"), view.integer("upper") != 0
    dtype = dtype_of(data)
    dims = dims_of(data)
    if dims is not None and len(dims) < 2:
        raise MalformedNode("bad-rank", f"Trilu takes matrices, `{data.name}` has rank {len(dims)}")
    rank = 2 if dims is None else len(dims)
    row = positions(em, data, -2, place=rank - 2, rank=rank)  # (1, ..., R, 1)
    column = positions(em, data, -1, place=rank - 1, rank=rank)  # (1, ..., 1, C)
    if k is not None:
        row = em.op("Add", row, em.op("Reshape", k, [1]))
    outside = em.op("Less" if upper else "Greater", column, row)  # (1, ..., R, C)
    if dtype == _BOOL:
        kept = em.op("Not", outside)
        return em.op("And", kept, data)
    if dtype in (ir.DataType.STRING, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        raise Refusal(
            "element-type",
            f"Trilu of {dtype.name} cannot be lowered below opset 14",
        )
    known_type(data)
    return where(em, outside, 0, data)


# GatherND-12 with `batch_dims`, for opset 11.


def lower_gather_nd_12(view: Rewritten, em: Emitter) -> ir.Value:
    """Put the batch coordinates in front of each index tuple.

    indices (b..., n..., k) becomes (b..., n..., len(b) + k), each tuple beginning with its b.

    Refuses an unknown rank of the indices.
    """
    op = em.op
    data, indices = view.operands("data", "indices")
    batch = view.integer("batch_dims", 0)
    sizes, dims = (known_dims(x, f"`batch_dims` is {batch}, and ") for x in (data, indices))
    rank = len(dims)
    counted = op("Slice", op("Shape", indices), [0], [-1])
    tuples = op("Concat", counted, [1], axis=0)
    parts = []
    for axis in range(batch):
        place = positions(em, data, axis, place=axis, rank=rank, dim=sizes[axis])
        parts.append(op("Expand", place, tuples))  # (b..., n..., 1)
    whole = op("Concat", *parts, indices, axis=-1)
    return op("GatherND", data, whole)
