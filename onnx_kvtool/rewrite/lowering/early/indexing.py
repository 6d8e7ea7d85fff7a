"""Gathers, scatters and OneHot of opset 11, for opset 10: no negative index, no tuples of indices.

A tuple (i, j, ...) becomes the number i * size_j + j of a row of the data, whose first dimensions
are joined. If an index is out of range, it becomes the number behind the last row: what fails at
opset 11 fails here too, and no other row is read or written. ScatterElements was called Scatter.
"""

from __future__ import annotations

import functools
import operator

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import Term, cast, known_dims, known_type
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import (
    again,
    count_up,
    inside_or_behind,
    joined_sizes,
    product,
    replaced_where,
)
from onnx_kvtool.symbolic.dimensions import Dims, dims_of, fixed_sizes
from onnx_kvtool.symbolic.dimensions import product as product_of

_INT64 = ir.DataType.INT64


def lower_gather_11(view: Rewritten, em: Emitter) -> Replacement:
    """Add the size of the axis to negative indices."""
    data, indices = view.operands("data", "indices")
    front, axis = _front(view, em, data, indices)
    return again(em, view.node, [data, front], {"axis": axis})


def lower_scatter_elements_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Write Scatter, with the size of the axis added to negative indices."""
    data, indices, updates = view.operands("data", "indices", "updates")
    front, axis = _front(view, em, data, indices)
    known_type(data)
    return em.op("Scatter", data, front, updates, axis=axis)


def lower_gather_elements_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather from the data in one dimension, at the place of each element there."""
    data, indices = view.operands("data", "indices")
    known_type(data)
    dims, counts = (known_dims(v) for v in (data, indices))
    front, axis = _front(view, em, data, indices)
    outside = None
    if view.known(indices) is None:
        outside = _outside(Term(em, front), product(em, data, dims, [axis]))
    return gathered_elements(em, data, dims, front, counts, axis, outside)


def gathered_elements(
    em: Emitter,
    data: ir.Value,
    dims: Dims,
    front: ir.Value,
    counts: Dims,
    axis: int,
    outside: Term | None = None,
) -> ir.Value:
    """Return the element of the data at each index along an axis, as GatherElements does.

    `dims` and `counts` are the dimensions of data and index; no index is negative. `outside` is 1
    for those that are out of range, which fail.
    """
    rank, places = len(dims), []
    for d in range(rank):
        index = Term(em, front)
        if d != axis:
            index = count_up(em, product(em, front, counts, [d]))
            index = index.op("Reshape", [-1 if place == d else 1 for place in range(rank)])
        places.append(index * product(em, data, dims, range(d + 1, rank)))
    place = functools.reduce(operator.add, places)
    if outside is not None:
        place = replaced_where(place, outside, product(em, data, dims, range(rank)))
    return em.op("Gather", em.op("Reshape", data, [-1]), place, axis=0)


def lower_gather_nd_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather rows of the data by the number of each tuple.

    Refuses tuples of unknown length, and an unknown rank of the data.
    """
    data, indices = view.operands("data", "indices")
    dtype = known_type(data)
    dims = known_dims(data)
    length = _tuple_length(indices)
    rows = _rows(em, data, dims, length, dtype)
    number = _numbers(view, em, data, dims, indices, length)
    return em.op("Gather", rows, number, axis=0)


def lower_scatter_nd_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Scatter rows of the data by the number of each tuple, every element of them.

    Refuses tuples of unknown length, and an unknown rank of the data.
    """
    op = em.op
    data, indices, updates = view.operands("data", "indices", "updates")
    known_type(data)
    dims = known_dims(data)
    length = _tuple_length(indices)
    if 0 in dims:  # there is nothing to write to
        return op("Identity", data)
    number = _numbers(view, em, data, dims, indices, length)
    tuples = known_dims(indices)[:-1]
    sizes = (*tuples, *dims[length:])
    rows = _flat(em, data, length, len(dims))  # (P, R)
    updates = _flat(em, updates, len(tuples), len(sizes))
    count, width = product_of(tuples), product_of(dims[length:])
    if count is None or width is None:
        shape = op("Shape", updates)
    else:
        shape = em.constant([count, width], "shape")
    column = _flat(em, number, len(tuples), len(tuples))
    result = op("Scatter", rows, op("Expand", column, shape), updates, axis=0)
    return op("Reshape", result, op("Shape", data))


def lower_one_hot_11(view: Rewritten, em: Emitter) -> Replacement:
    """Add the depth to negative indices; those that are still negative select nothing.

    These become the depth, as runtimes are known to count them from the back once more. Indices
    that are no integers are cast to int64 first, as the text says.
    """
    indices, depth = view.operands("indices", "depth")
    front = _inside(em, indices, em.op("Reshape", cast(em, depth, _INT64), [1]))
    axis = view.integer("axis")
    if axis < -1:
        axis += len(known_dims(indices)) + 1
    inputs = [front, depth, view.required("values")]
    return again(em, view.node, inputs, {"axis": axis})


def _inside(em: Emitter, indices: ir.Value, length: Operand) -> ir.Value:
    """Return indices counted from the front, int64, and the length, (1,), for those before it."""
    front = inside_or_behind(Term(em, cast(em, indices, _INT64)), length).value
    if not dims_of(indices):  # a sum with a vector is no scalar
        front = em.op("Reshape", front, em.op("Shape", indices))
    return front


def _front(view: Rewritten, em: Emitter, data: ir.Value, indices: ir.Value) -> tuple[ir.Value, int]:
    """Return indices along the axis of a node counted from the front, and the axis likewise."""
    dims = known_dims(data)
    axis = counted_axis(view.integer("axis"), len(dims))
    known, dim = view.known(indices), dims[axis]
    if known is not None and (known.size == 0 or known.min() >= 0):
        return indices, axis
    if known is not None and isinstance(dim, int):
        dtype = (indices.dtype or _INT64).numpy()
        return em.constant(np.where(known < 0, known + dim, known).astype(dtype), "indices"), axis
    return _inside(em, indices, product(em, data, dims, [axis])), axis


def _tuple_length(indices: ir.Value) -> int:
    last = known_dims(indices)[-1:]
    if not last or not isinstance(last[0], int):
        raise Refusal(
            "unknown-dimension",
            f"the last size of `{indices.name}` is unknown",
            help="declare the shape of the indices",
        )
    return last[0]


def _rows(em: Emitter, data: ir.Value, dims: Dims, length: int, dtype: ir.DataType) -> ir.Value:
    """Return the data with its first dimensions made one."""
    if length == 1:
        return data
    rest, count = fixed_sizes(dims[length:]), product_of(dims[:length])
    if rest is not None and 0 not in rest:
        shape = em.constant([-1, *rest], "shape")
    elif 0 in dims and rest is not None and count is not None:
        return em.constant(np.zeros((count, *rest), dtype.numpy()), "nothing")
    else:
        groups = [range(length), *([axis] for axis in range(length, len(dims)))]
        shape = joined_sizes(em, data, dims, groups)
    return em.op("Reshape", data, shape)


def _flat(em: Emitter, value: ir.Value, axis: int, rank: int) -> ir.Value:
    """Return the dimensions in front of an axis as one, and the others as one: also of size 0."""
    if not axis and not rank:
        return em.op("Reshape", value, [1, 1])
    return em.op("Flatten", value, axis=axis)


def _numbers(
    view: Rewritten,
    em: Emitter,
    data: ir.Value,
    dims: Dims,
    indices: ir.Value,
    length: int,
) -> ir.Value:
    """Return the number of the row that each tuple names, (...) for tuples (..., length)."""
    wide, known = Term(em, cast(em, indices, _INT64)), view.known(indices)
    outside: Term | None = None
    if known is None or (known.size and known.min() < 0):
        lengths = joined_sizes(em, data, dims, [[axis] for axis in range(length)])
        wide = inside_or_behind(wide, lengths)
        outside = _outside(wide, lengths)
    strides = joined_sizes(em, data, dims, [range(axis + 1, length) for axis in range(length)])
    last = len(known_dims(indices)) - 1
    number = (wide * strides).op("ReduceSum", axes=[last], keepdims=0)
    if outside is None:
        return number.value
    is_outside = outside.op("ReduceMax", axes=[last], keepdims=0)
    found = replaced_where(number, is_outside, product(em, data, dims, range(length)))
    # The count is a vector of one number, the row of a single tuple is a scalar.
    return found.value if last else em.op("Reshape", found, [])


def _outside(index: Term, length: Operand) -> Term:
    """Return 1 for indices behind the last element, 0 for all others, int64."""
    return (~(index < length)).cast(_INT64)
