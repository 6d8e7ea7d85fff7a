"""Inverse, of which ONNX has Det alone: elimination, a few nodes for each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder, known_rank, only
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["inverse"]

_LARGEST = 16
"""Largest matrix that is written so: each row takes two dozen nodes."""


def inverse(view: NodeView, em: Emitter) -> Replacement:
    """Write Inverse as the elimination of one row after another, of the largest pivot each time.

    Computed in float32, or in float64: as exact as the LU decomposition of onnxruntime, bit for bit
    it is not. Refuses matrices of an unknown size, and larger than 16.
    """
    x, rank = view.required("X"), known_rank(view, view.required("X"))
    sizes = (dims_of(x) or ())[-2:]
    known = [size for size in sizes if isinstance(size, int)]
    if rank < 2 or len(set(known)) > 1:
        raise MalformedNode("operand-shape", f"`X` of `Inverse` is {sizes}, expected a square")
    if not known or known[0] > _LARGEST:
        text = f"matrices of `Inverse` are of size {sizes[0]}, expected a number up to {_LARGEST}"
        raise Refusal("contrib-form", text)
    dtype = x.dtype or ir.DataType.UNDEFINED
    wide = dtype if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    count, op = known[0], Builder(em, wide)
    if count == 0:
        return only(Builder(em, dtype)("Identity", x))
    left = cast(em, x, wide)
    if count == 1:
        one = em.constant(np.ones((), wide.numpy()), "one")
        return only(cast(em, op("Div", one, left), dtype))
    right = em.constant(np.eye(count, dtype=wide.numpy()), "eye")
    both = op("Concat", *_eliminated(op, [left, right], 0, count), attributes={"axis": -1})
    for row in range(1, count):
        (both,) = _eliminated(op, [both], row, count)
    return only(cast(em, _part(op, both, count, 2 * count, -1), dtype))


def _eliminated(op: Builder, sides: Sequence[ir.Value], row: int, count: int) -> Sequence[ir.Value]:
    """Make a column of the first matrix that of the unit matrix, and do the same to the others.

    Args:
        op: Builds.
        sides: (..., count, at least count), the first one with `row` columns done; one whose rows
            are alike in all of a batch may lack its axes.
        row: Which row and column.
        count: How many there are.
    """
    em, left = op.em, sides[0]
    lines = [_part(op, side, row, row + 1, -2) for side in sides]  # (..., 1, count)
    if row < count - 1:
        below = _part(op, _part(op, left, row, row + 1, -1), row, count, -2)
        largest = em.op("ArgMax", op("Abs", below), attributes={"axis": -2})  # (..., 1, 1)
        place = em.op("Add", largest, em.constant(row, "row"))
        rows = em.constant(np.arange(count)[:, None], "rows")
        mark = cast(em, em.op("Equal", rows, place, dtype=ir.DataType.BOOL), op.dtype)
        others = op("Sub", em.constant(np.ones((), op.dtype.numpy()), "one"), mark)
        pivots = [reduce(em, "ReduceSum", op("Mul", mark, side), [-2]) for side in sides]
        # The row goes where the pivot was. Sums of a product with 0 and one with 1 are exact.
        sides = [
            op("Add", op("Mul", others, side), op("Mul", mark, line))
            for side, line in zip(sides, lines, strict=True)
        ]
        lines = pivots
    pivot = _part(op, lines[0], row, row + 1, -1)
    column = _part(op, sides[0], row, row + 1, -1)  # (..., count, 1)
    done = []
    for side, line in zip(sides, lines, strict=True):
        scaled = op("Div", line, pivot)
        rest = op("Sub", side, op("Mul", column, scaled))
        around = [(0, row), (row + 1, count)]
        parts = [
            _part(op, rest, *bounds, -2) if bounds[0] < bounds[1] else None for bounds in around
        ]
        joined = [part for part in (parts[0], scaled, parts[1]) if part is not None]
        done.append(op("Concat", *joined, attributes={"axis": -2}))
    return done


def _part(op: Builder, x: ir.Value, start: int, end: int, axis: int) -> ir.Value:
    bounds = (op.em.constant([number], "bound") for number in (start, end, axis))
    return op("Slice", x, *bounds)
