"""The wide form of what is cut, looked up and scattered."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.columns.state import Stuck, Widened, is_grown
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Size
from onnx_kvtool.symbolic.expressions import coordinate, integer
from onnx_kvtool.symbolic.simplification import Facts, interval

__all__ = ["gathered", "looked_up", "scattered", "sliced"]


def scattered(view: NodeView, state: Widened) -> ir.Value:
    """Return the updates, where each element of the data is written at its own place."""
    data, indices, updates = (view.required(name) for name in ("data", "indices", "updates"))
    shape = state.target(data)
    if view.attribute("reduction") not in (None, "none") or state.target(updates) != shape:
        raise Stuck("`ScatterND` does not write all elements")
    if state.target(indices) != [*shape, len(shape)]:
        raise Stuck("`ScatterND` does not write all elements")
    held = state.maps().of(state.of(indices))
    for axis, size in enumerate(shape):
        place = held.component(axis)
        own = integer(0) if size == 1 else coordinate(axis)
        if place is None or place.element != own:
            raise Stuck("`ScatterND` is not known to write each element at its own place")
    return state.em.op("Identity", state.of(updates), dtype=state.dtype(updates))


def sliced(view: NodeView, state: Widened) -> ir.Value:
    """Cut along one axis after the other."""
    data, output = view.required("data"), view.node.outputs[0]
    before, after = state.sizes(data), state.sizes(output)
    starts, ends = view.required("starts"), view.required("ends")
    axes, steps = view.input("axes"), view.input("steps")
    which = None if axes is None else state.folder.integers(axes)
    stride = None if steps is None else state.folder.integers(steps)
    count = len(before) if which is None and axes is None else 0 if which is None else which.size
    if (axes is not None and which is None) or (steps is not None and stride is None) or not count:
        raise Stuck("the axes of `Slice` are not constant")
    if stride is not None and (stride != 1).any():
        raise Stuck("`Slice` does not take one row after the other")
    value = state.of(data)
    for number in range(count):
        axis = number if which is None else int(which.ravel()[number]) % len(before)
        limits = [
            limit if count == 1 else _element(limit, number, state) for limit in (starts, ends)
        ]
        value = _cut(value, axis, (before[axis], after[axis]), (limits[0], limits[1]), state)
    return state.em.op("Identity", value, dtype=state.dtype(output))


def _element(vector: ir.Value, number: int, state: Widened) -> ir.Value:
    known = state.folder.integers(vector)
    if known is not None:
        return state.em.constant([int(known.ravel()[number])], "limit")
    dtype = state.dtype(vector)
    return state.em.op("Gather", vector, state.em.constant([number], "place"), dtype=dtype)


def _cut(
    value: ir.Value,
    axis: int,
    sizes: tuple[Size, Size],
    limits: tuple[ir.Value, ir.Value],
    state: Widened,
) -> ir.Value:
    """Cut a value along one axis; `sizes` are those of the axis before and after, in the source."""
    em, (before, after), (start, end) = state.em, sizes, limits
    dtype = value.dtype or ir.DataType.UNDEFINED
    known = state.folder.integers(start)
    first = None if known is None else int(known.ravel()[0])
    if after == GROWN and first == 0:
        if before is not None and before < 0:
            return value
        if before is None or before < state.capacity:
            raise Stuck(f"a table of {before} rows is shorter than the caches")
        ends = em.constant([state.capacity], "capacity")
        return em.op("Slice", value, start, ends, em.constant([axis], "axes"), dtype=dtype)
    if after == GROWN:
        raise Stuck("`Slice` does not begin with the first of the rows in use")
    if before == LONGER:
        raise Stuck("`Slice` cuts what is of no known length")
    if before == GROWN:
        if after is None:
            raise Stuck("it is not known how many rows `Slice` takes")
        place = _from_front(start, state.count, em)
        rows = em.op("Add", place, em.constant(np.arange(after, dtype=np.int64), "rows"))
        return em.op("Gather", value, rows, attributes={"axis": axis}, dtype=dtype)
    return em.op("Slice", value, start, end, em.constant([axis], "axes"), dtype=dtype)


def gathered(view: NodeView, state: Widened) -> ir.Value:
    """Look up rows; those that are asked for in the name of no row in use may not exist."""
    data, indices = view.required("data"), view.required("indices")
    sizes = state.sizes(data)
    axis = view.integer("axis") % len(sizes)
    places = state.of(indices)
    if sizes[axis] == LONGER:
        raise Stuck("`Gather` looks up what is of no known length")
    if sizes[axis] == GROWN:
        if is_grown(state.sizes(indices)):
            raise Stuck("`Gather` takes as many rows as are in use from these")
        known = state.folder.integers(places)
        if known is None or (known < 0).any():
            places = _from_front(places, state.em.op("Squeeze", state.count), state.em)
    elif is_grown(state.sizes(indices)):
        size = sizes[axis]
        if size is None or size < 1:
            raise Stuck(f"the size of `{data.name}` is not known")
        dtype = state.dtype(indices)
        low, high = (
            state.em.constant(np.array(n).astype(dtype.numpy()), "limit") for n in (-size, size - 1)
        )
        most = state.em.op("Min", places, high, dtype=dtype)
        places = state.em.op("Max", most, low, dtype=dtype)
    return state.again(view, state.of(data), places)


def looked_up(view: NodeView, state: Widened) -> ir.Value:
    """Look up elements by tuples of coordinates and constants, all of them within the data."""
    data, indices = view.required("data"), view.required("indices")
    sizes, tuples = state.target(data), state.of(indices)
    depth = state.sizes(indices)[-1]
    if view.integer("batch_dims") != 0 or depth is None or depth < 1:
        raise Stuck("`GatherND` looks up each sequence by itself")
    shape = state.target(indices)
    held, facts = state.maps().of(tuples), Facts(tuple(map(integer, shape)))
    for axis in range(depth):
        place = held.component(axis)
        if place is None or place.element is None:
            raise Stuck("`GatherND` is not known to look up elements that are there")
        low, high = interval(place.element, facts)
        if low < 0 or high >= sizes[axis]:
            raise Stuck("`GatherND` is not known to look up elements that are there")
    return state.again(view, state.of(data), tuples)


def _from_front(places: ir.Value, count: ir.Value, em: Emitter) -> ir.Value:
    """Return places of which none is counted from the end of the rows in use, (.., int64).

    Of caches of a fixed capacity that end is another.
    """
    wide = em.op("Cast", places, attributes={"to": 7})
    zero = em.constant(np.array(0, np.int64), "zero")
    behind = em.op("Less", wide, zero, dtype=ir.DataType.BOOL)
    return em.op("Where", behind, em.op("Add", wide, count), wide)
