"""Scatters with a reduction, and rounds of a scatter that meets an element again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import Term, cast, dtype_of, formal, looped, positions, size, where
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import Dims, dims_of, fixed_sizes, product

# Updates of places that may be named twice, one after the other.


_ELEMENTWISE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def reduced(em: Emitter, reduction: str, present: ir.Value, updates: ir.Value) -> ir.Value:
    """Return what stands at places combined with one update of each, of one shape."""
    dtype = dtype_of(present)
    if reduction in ("max", "min") and em.opset < 12 and dtype not in FLOAT_TYPES:
        order = "Greater" if reduction == "max" else "Less"  # Max of integers came with opset 12
        is_kept = em.op(order, present, updates)
        return where(em, is_kept, present, updates)
    return em.op(_ELEMENTWISE[reduction], present, updates)


def scattered_in_rounds(
    em: Emitter,
    reduction: str,
    data: ir.Value,
    places: ir.Value,
    updates: ir.Value,
    sizes: Sequence[ir.Value],
    count: int | None,
) -> ir.Value:
    """Combine the places of `data` with updates, in the order of the updates.

    Args:
        em: Where to build.
        reduction: `add`, `mul`, `max` or `min`.
        data: (D1, ..., Dr).
        places: (n, q), int64; negative ones count from the end.
        updates: (n, D(q+1), ..., Dr).
        sizes: The first q sizes of `data`: (), int64.
        count: n, where it is known.
    """
    op = em.op
    dtype = dtype_of(data)
    if count == 0:
        return op("Identity", data)
    order, number = _numbered(em, places, sizes, count)
    last = number.op("Concat", [-1], axis=0).reduce("ReduceMax", [0], keepdims=False)
    state = formal(em, "scattered", dtype, data.shape)

    def one_round(turn: ir.Value, goes: ir.Value) -> list[ir.Value]:
        due = number.op("Equal", turn).op("NonZero").op("Reshape", [-1])
        ids = op("Gather", order, due)
        rows, given = (op("Gather", value, ids) for value in (places, updates))
        combined = reduced(em, reduction, op("GatherND", state, rows), given)
        return [goes, op("ScatterND", state, rows, combined)]

    (result,) = looped(em, (last + 1).value, [data], [state], one_round)
    result.shape = None if data.shape is None else ir.Shape(data.shape)
    return result


def _numbered(
    em: Emitter, places: ir.Value, sizes: Sequence[ir.Value], count: int | None
) -> tuple[ir.Value, Term]:
    """Return the updates sorted by place, and which update of its place each of them is.

    TopK puts equal places in the order of their updates.

    Returns:
        (n,) and (n,), int64: positions among the updates; 0 for the first of a place.
    """
    key: Term | None = None
    for column, extent in enumerate(sizes):
        one = Term(em, em.op("Gather", places, column, axis=1))
        counted = (one < 0).where(one + extent, one)
        key = counted if key is None else key * extent + counted
    assert key is not None
    if not em.branches:  # below opset 11 TopK takes floats only; no tensor is beyond float64
        key = key.cast(ir.DataType.DOUBLE)
    if count is None:
        length: Operand = key.op("Shape")  # (1,)
        everyone = em.op("Range", 0, em.op("Reshape", length, []), 1)
    else:
        length, everyone = [count], em.constant(np.arange(count), "everyone")
    by_place, order = em.multi("TopK", key, length, axis=0, largest=0, count=2)
    # Places are not negative, so that the first one differs from what stands before it.
    before = em.op("Slice", em.op("Concat", [-1], by_place, axis=0), [0], [-1], [0])
    is_first = ~Term(em, by_place).op("Equal", before)
    run = is_first.cast(ir.DataType.INT64).op("CumSum", 0) - 1
    firsts = is_first.op("NonZero").op("Reshape", [-1])
    return order, Term(em, everyone) - firsts.op("Gather", run)


# ScatterElements and ScatterND with a reduction, where the target lacks it.


_SINCE = {"none": 11, "add": 16, "mul": 16, "max": 18, "min": 18}


def lower_scatter_reduction_18(view: Rewritten, em: Emitter) -> ir.Value | Replacement:
    """Combine what stands at the places with the updates, then scatter without a reduction.

    updates' = reduction(GatherND(data, indices), updates)

    That combines each place once. Where indices may name a place twice, a Loop takes the first
    update of each place, then the second, and so on: what comes to one place comes in the order
    of the updates. TopK sorts the places, and the updates are numbered by them.

    Refuses such indices where the rank of the data, or the length of an index, is unknown.
    """
    data, indices, updates = view.operands("data", "indices", "updates")
    reduction, elements = view.string("reduction"), view.node.op_type == "ScatterElements"
    attributes: dict[str, AttributeValue] = {"axis": view.integer("axis")} if elements else {}
    if em.opset < _SINCE[reduction]:
        known = view.known(indices)
        axis = attributes.get("axis")
        if not _is_one(indices, axis) and (known is None or not _distinct(known, data, axis)):
            result = _in_rounds(em, data, indices, updates, reduction, axis)
            return Replacement((result,), via="loop")
        gather = "GatherElements" if elements else "GatherND"
        present = em.op(gather, data, indices, attributes=attributes)
        updates = reduced(em, reduction, present, updates)
    elif reduction != "none":
        attributes["reduction"] = reduction
    return em.op(view.node.op_type, data, indices, updates, attributes=attributes)


def _is_one(indices: ir.Value, axis: object) -> bool:
    """Return whether there is one index only, for each line of an axis or at all."""
    dims = dims_of(indices)
    if not dims:
        return False
    return dims[axis] == 1 if isinstance(axis, int) else all(dim == 1 for dim in dims[:-1])


def _distinct(indices: NDArray[np.int64], data: ir.Value, axis: object) -> bool:
    """Return whether no two indices certainly or possibly name one place."""
    dims = dims_of(data)
    if dims is None:
        return False
    if isinstance(axis, int):
        length = dims[axis]
        if not isinstance(length, int):
            return False
        lines = np.sort(np.moveaxis(indices % length, axis, -1), axis=-1)
        return not (lines[..., 1:] == lines[..., :-1]).any()
    sizes = fixed_sizes(dims[: indices.shape[-1]])
    if sizes is None:
        return False
    tuples = (indices % np.array(sizes, np.int64)).reshape(-1, len(sizes))
    return len(np.unique(tuples, axis=0)) == len(tuples)


def _in_rounds(
    em: Emitter,
    data: ir.Value,
    indices: ir.Value,
    updates: ir.Value,
    reduction: str,
    axis: object,
) -> ir.Value:
    op = em.op
    dims = dims_of(data)
    index = dims_of(indices)
    length = len(dims or ()) if isinstance(axis, int) else (index or (None,))[-1]
    if dims is None or not isinstance(length, int):
        what = "data" if dims is None else "indices"
        value = data if dims is None else indices
        raise Refusal(
            "unknown-rank" if dims is None else "unknown-dimension",
            f"`reduction={reduction}` does not exist before opset {_SINCE[reduction]}, "
            f"`{indices.name}` may name a place twice, and the shape of the {what} "
            f"`{value.name}` is unknown",
            help="make the indices constant, or declare the shapes",
        )
    if isinstance(axis, int):
        indices = _tuples(em, indices, index, counted_axis(axis, len(dims)), len(dims))
        flat = op("Reshape", updates, [-1])
    else:
        rest = op("Gather", op("Shape", data), np.arange(length, len(dims)))
        shape = op("Concat", [-1], rest, axis=0)
        flat = op("Reshape", updates, shape)
    rows = op("Reshape", indices, [-1, length])
    sizes = [size(em, data, place, dims[place]) for place in range(length)]
    lead = index if isinstance(axis, int) or index is None else index[:-1]
    count = product(lead) if lead is not None and index else None
    return scattered_in_rounds(em, reduction, data, rows, flat, sizes, count)


def _tuples(
    em: Emitter,
    indices: ir.Value,
    dims: Dims | None,
    axis: int,
    rank: int,
) -> ir.Value:
    """Return the whole index of each element: (..., rank), int64, for one along an axis."""
    dims = dims or (None,) * rank
    whole = cast(em, indices, ir.DataType.INT64)
    columns = []
    nothing = em.op("Mul", whole, 0)
    for place in range(rank):
        one = whole
        if place != axis:
            counted = positions(em, indices, place, place=place, rank=rank, dim=dims[place])
            one = em.op("Add", nothing, counted)
        columns.append(em.op("Reshape", one, [*[0] * rank, -1]))
    if rank == 1:
        return columns[0]
    return em.op("Concat", *columns, axis=rank)
