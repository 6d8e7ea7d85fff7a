"""Gathers, scatters and OneHot of opset 11, for opset 10: no negative index, no tuples of indices.

A tuple (i, j, ...) is the number i * size_j + j among the rows of the data, its first dimensions
made one. One of which an index is out of range is the number behind the last row, so that what
fails at opset 11 fails here too, and no other row is read or written. `Scatter` is what
ScatterElements was called before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Rewritten
from onnx_kvtool.rewrite.lowering.early.again import (
    again,
    count_up,
    element_type,
    inside_or_behind,
    joined_sizes,
    known_rank,
    product,
)
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

_INT64 = ir.DataType.INT64


def lower_gather_11(view: Rewritten, em: Emitter) -> Replacement:
    """Add the size of the axis to negative indices."""
    data, indices = view.operands("data", "indices")
    front, axis = _front(view.context, em, data, indices, view.integer("axis"), "Gather")
    return again(em, view.node, inputs=[data, front], attributes={"axis": axis})


def lower_scatter_elements_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Write Scatter, with the size of the axis added to negative indices."""
    data, indices = view.operands("data", "indices")
    front, axis = _front(view.context, em, data, indices, view.integer("axis"), "ScatterElements")
    element_type(data, "ScatterElements", 11)
    updates = view.required("updates")
    return em.op("Scatter", data, front, updates, axis=axis)


def lower_gather_elements_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather from the data in one dimension, at the place of each element there."""
    data, indices = view.operands("data", "indices")
    element_type(data, "GatherElements", 11)
    dims, counts = (known_rank(v, "GatherElements", 11) for v in (data, indices))
    front, axis = _front(view.context, em, data, indices, view.integer("axis"), "GatherElements")
    place = _element_places(em, data, dims, front, counts, axis)
    if view.context.folder.integers(indices) is None:
        length = product(em, data, dims, [axis])
        everything = product(em, data, dims, range(len(dims)))
        place = _or_none(em, place, _outside(em, front, length), everything)
    flat = em.op("Reshape", data, [-1], hint="flat")
    return em.op("Gather", flat, place, axis=0)


def gathered_elements(
    em: Emitter,
    data: ir.Value,
    dims: tuple[Dim, ...],
    index: ir.Value,
    counts: tuple[Dim, ...],
    axis: int,
) -> ir.Value:
    """Return the element of the data at each index along an axis, as GatherElements does.

    Args:
        em: Where to build.
        data: The data.
        dims: Its dimensions.
        index: Places along the axis, none of them negative or out of range, int64.
        counts: Dimensions of the index.
        axis: The axis, counted from the front.
    """
    place = _element_places(em, data, dims, index, counts, axis)
    flat = em.op("Reshape", data, [-1], hint="flat")
    return em.op("Gather", flat, place, axis=0, hint="gathered")


def _element_places(
    em: Emitter,
    data: ir.Value,
    dims: tuple[Dim, ...],
    front: ir.Value,
    counts: tuple[Dim, ...],
    axis: int,
) -> ir.Value:
    """Return the place of each element in the data made one dimension: of the shape of `front`."""
    rank = len(dims)
    place: ir.Value | None = None
    for d in range(rank):
        index = front
        if d != axis:
            count = product(em, front, counts, [d])
            shape = [1] * rank
            shape[d] = -1
            index = em.op("Reshape", count_up(em, count), shape)
        step = product(em, data, dims, range(d + 1, rank))
        index = em.op("Mul", index, step, hint="place")
        place = index if place is None else em.op("Add", place, index, hint="place")
    assert place is not None
    return place


def lower_gather_nd_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather rows of the data by the number of each tuple.

    Refuses tuples of unknown length, and an unknown rank of the data.
    """
    data, indices = view.operands("data", "indices")
    dtype = element_type(data, "GatherND", 11)
    dims = known_rank(data, "GatherND", 11)
    length = _tuple_length(indices, "GatherND")
    rows = _rows(em, data, dims, length, dtype)
    number = _numbers(view.context, em, data, dims, indices, length)
    return em.op("Gather", rows, number, axis=0)


def lower_scatter_nd_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Scatter rows of the data by the number of each tuple, every element of them.

    Refuses tuples of unknown length, and an unknown rank of the data.
    """
    data, indices = view.operands("data", "indices")
    element_type(data, "ScatterND", 11)
    dims = known_rank(data, "ScatterND", 11)
    length = _tuple_length(indices, "ScatterND")
    updates = view.required("updates")
    if 0 in dims:  # there is nothing to write to
        return em.op("Identity", data)
    number = _numbers(view.context, em, data, dims, indices, length)
    tuples = known_rank(indices, "ScatterND", 11)[:-1]
    sizes = (*tuples, *dims[length:])
    rows = _flat(em, data, length, len(dims), "rows")  # (P, R)
    updates = _flat(em, updates, len(tuples), len(sizes), "updates")
    if all(isinstance(size, int) for size in sizes):
        count, width = math.prod(tuples), math.prod(dims[length:])  # type: ignore[arg-type]
        shape = em.constant([count, width], "shape")
    else:
        shape = em.op("Shape", updates)
    column = _flat(em, number, len(tuples), len(tuples), "row")
    places = em.op("Expand", column, shape, hint="places")
    result = em.op("Scatter", rows, places, updates, axis=0)
    whole = _shape_of(em, data, dims)
    return em.op("Reshape", result, whole)


def lower_one_hot_11(view: Rewritten, em: Emitter) -> Replacement:
    """Add the depth to negative indices; those that are still negative select nothing.

    These become the depth, as runtimes are known to count them from the back once more. Indices
    that are no integers are cast to int64 first, as the text says.
    """
    indices, depth = view.operands("indices", "depth")
    scalar = em.op("Reshape", cast(em, depth, _INT64), [1], hint="depth")
    front = inside_or_behind(em, cast(em, indices, _INT64), scalar)
    dims = dims_of(indices)
    if dims is None or not dims:  # a sum with a vector is no scalar
        shape = em.op("Shape", indices)
        front = em.op("Reshape", front, shape, hint="indices")
    axis = view.integer("axis")
    if axis < -1:
        axis += len(known_rank(indices, "OneHot with a negative axis", 11)) + 1
    inputs = [front, depth, view.required("values")]
    return again(em, view.node, inputs=inputs, attributes={"axis": axis})


def _front(
    context: LoweringContext,
    em: Emitter,
    data: ir.Value,
    indices: ir.Value,
    axis: int,
    op_type: str,
) -> tuple[ir.Value, int]:
    """Return indices along an axis counted from the front, and the axis likewise."""
    dims = known_rank(data, op_type, 11)
    axis = counted_axis(axis, len(dims))
    known, dim = context.folder.integers(indices), dims[axis]
    if known is not None and (known.size == 0 or known.min() >= 0):
        return indices, axis
    if known is not None and isinstance(dim, int):
        dtype = (indices.dtype or _INT64).numpy()
        return em.constant(np.where(known < 0, known + dim, known).astype(dtype), "indices"), axis
    length = product(em, data, dims, [axis])
    front = inside_or_behind(em, cast(em, indices, _INT64), length)
    shape = dims_of(indices)
    if shape is None or not shape:  # a sum with a vector is no scalar
        front = em.op("Reshape", front, em.op("Shape", indices), hint="indices")
    return front, axis


def _tuple_length(indices: ir.Value, op_type: str) -> int:
    last = known_rank(indices, op_type, 11)[-1:]
    if not last or not isinstance(last[0], int):
        raise Refusal(
            "unknown-dimension",
            f"{op_type} cannot be lowered below opset 11 because the last size of "
            f"`{indices.name}` is unknown",
            help="declare the shape of the indices",
            lowest_opset=11,
        )
    return last[0]


def _rows(
    em: Emitter, data: ir.Value, dims: tuple[Dim, ...], length: int, dtype: ir.DataType
) -> ir.Value:
    """Return the data with its first dimensions made one."""
    if length == 1:
        return data
    rest = dims[length:]
    if all(isinstance(dim, int) and dim > 0 for dim in rest):
        shape = em.constant([-1, *rest], "shape")  # type: ignore[list-item]
    elif 0 in dims and all(isinstance(dim, int) for dim in dims):
        return _nothing(em, (math.prod(dims[:length]), *rest), dtype)  # type: ignore[arg-type]
    else:
        groups = [range(length), *([axis] for axis in range(length, len(dims)))]
        shape = joined_sizes(em, data, dims, groups)
    return em.op("Reshape", data, shape, hint="rows")


def _nothing(em: Emitter, sizes: Sequence[int], dtype: ir.DataType) -> ir.Value:
    """Return a constant without elements."""
    return em.constant(np.zeros(sizes, dtype.numpy()), "nothing")


def _flat(em: Emitter, value: ir.Value, axis: int, rank: int, hint: str) -> ir.Value:
    """Return the dimensions in front of an axis as one, and the others as one: also of size 0."""
    if not axis and not rank:
        return em.op("Reshape", value, [1, 1], hint=hint)
    return em.op("Flatten", value, axis=axis, hint=hint)


def _numbers(
    context: LoweringContext,
    em: Emitter,
    data: ir.Value,
    dims: tuple[Dim, ...],
    indices: ir.Value,
    length: int,
) -> ir.Value:
    """Return the number of the row that each tuple names, (...) for tuples (..., length)."""
    wide, known = cast(em, indices, _INT64), context.folder.integers(indices)
    outside: ir.Value | None = None
    if known is None or (known.size and known.min() < 0):
        lengths = joined_sizes(em, data, dims, [[axis] for axis in range(length)])
        wide = inside_or_behind(em, wide, lengths)
        outside = _outside(em, wide, lengths)
    strides = joined_sizes(em, data, dims, [range(axis + 1, length) for axis in range(length)])
    last = len(known_rank(indices, "an index tuple", 11)) - 1
    attributes: dict[str, AttributeValue] = {"axes": [last], "keepdims": 0}
    number = em.op("ReduceSum", em.op("Mul", wide, strides), attributes=attributes, hint="row")
    if outside is None:
        return number
    is_outside = em.op("ReduceMax", outside, attributes=attributes, hint="is_outside")
    found = _or_none(em, number, is_outside, product(em, data, dims, range(length)))
    # The count is a vector of one number, the row of a single tuple is a scalar.
    return found if last else em.op("Reshape", found, [])


def _outside(em: Emitter, index: ir.Value, length: ir.Value) -> ir.Value:
    """Return 1 for indices behind the last element, 0 for all others, int64."""
    inside = em.op("Less", index, length)
    outside = em.op("Not", inside)
    return cast(em, outside, _INT64, hint="is_outside")


def _or_none(em: Emitter, number: ir.Value, outside: ir.Value, count: ir.Value) -> ir.Value:
    """Return `number`, and `count` where `outside` is 1."""
    missing = em.op("Mul", outside, em.op("Sub", count, number), hint="missing")
    return em.op("Add", number, missing, hint="place")


def _shape_of(em: Emitter, value: ir.Value, dims: tuple[Dim, ...]) -> ir.Value:
    if all(isinstance(dim, int) for dim in dims):
        return em.constant([int(dim) for dim in dims], "shape")  # type: ignore[arg-type]
    return em.op("Shape", value)
