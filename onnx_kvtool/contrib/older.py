"""Operators that exporters wrote, or still write, for what ONNX had none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, known_rank, no_form, refuse_value
from onnx_kvtool.emit.forms import (
    Term,
    computed_in,
    dtype_of,
    halves,
    scalar,
    size,
    terms,
    unsqueeze,
)
from onnx_kvtool.ops.view import MalformedNode, counted_axis
from onnx_kvtool.symbolic.dimensions import dims_of

# Operators that ONNX writes with several of its own.


def c_dist(site: Site) -> ir.Value:
    """Write CDist as onnxruntime computes it: -2 A B' + |A|^2 + |B|^2, and Sqrt for `euclidean`.

    Refuses the other metrics of its documentation: onnxruntime has no kernel for them.
    """
    refuse_value(site, "metric", "sqeuclidean", "euclidean")
    a, b = terms(site, *site.operands("A", "B"))
    product = (a * -2).op("MatMul", b.op("Transpose", perm=[1, 0]))
    left, right = (x.op("Mul", x, hint="square").reduce("ReduceSum", [1]) for x in (a, b))
    total = abs(product + left + right.op("Transpose", perm=[1, 0]))
    return (total if site.string("metric") == "sqeuclidean" else total.op("Sqrt")).value


def complex_mul(site: Site) -> ir.Value:
    """Write ComplexMul as Mul, Sub and Add of the real and imaginary parts, on the last axis."""
    return _complex_product(site, "Sub", "Add")


def complex_mul_conj(site: Site) -> ir.Value:
    """Write ComplexMulConj as ComplexMul with the second factor conjugated."""
    return _complex_product(site, "Add", "Sub")


def _complex_product(site: Site, real: str, imaginary: str) -> ir.Value:
    op = site.op
    (a, b), (c, d) = (halves(site, x) for x in site.operands("A", "B"))
    parts = (
        op(real, op("Mul", a, c), op("Mul", b, d), hint="real"),
        op(imaginary, op("Mul", b, c), op("Mul", a, d), hint="imaginary"),
    )
    return op("Concat", *parts, axis=-1)


def rfft(site: Site) -> ir.Value:
    """Write Rfft as DFT-20 of the last axis, onesided, and of the other axes of the signal.

    Refuses `normalized` and both sides, which its documentation does not support.
    """
    refuse_value(site, "normalized", 0)
    refuse_value(site, "onesided", 1)
    x, count = site.required("X"), site.integer("signal_ndim")
    rank = known_rank(site, x)
    if not 1 <= count <= rank:
        text = f"`signal_ndim` of `Rfft` is {count}, expected 1 to {rank}, the rank of `{x.name}`"
        raise no_form(text)
    y, op = unsqueeze(site, x, [rank]), site.op
    for axis in range(rank - 1, rank - 1 - count, -1):
        y = op("DFT", y, None, axis, onesided=int(axis == rank - 1))
    return y


def unfold_tensor(site: Site) -> ir.Value:
    """Write UnfoldTensor as a Gather of all windows, and a Transpose that puts them last."""
    op = site.op
    x, length, step = site.required("input"), site.integer("size"), site.integer("step")
    rank = known_rank(site, x)
    axis = counted_axis(site.integer("dim"), rank, "dim")
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
        places = site.constant(first[:, None] + inside, "places")
    else:
        end = op("Add", size(site, x, axis), 1 - length)
        starts = op("Range", 0, end, step)
        places = op("Add", unsqueeze(site, starts, [1]), inside)
    windows = op("Gather", x, places, axis=axis)
    if axis == rank - 1:
        return windows
    perm = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return op("Transpose", windows, perm=perm)


# Operators that ONNX has now.


_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
"""The name of each mode in GridSample-20."""


def grid_sample(site: Site) -> ir.Value:
    """Write GridSample as that of ONNX, whose modes have other names.

    Refuses `bicubic` with `border`: onnxruntime moves each pixel that is outside to the border, and
    ONNX moves the point.
    """
    x, mode = site.required("X"), site.string("mode")
    refuse_value(site, "mode", *_MODES)
    borders = ("zeros", "reflection") if mode == "bicubic" else ("zeros", "border", "reflection")
    refuse_value(site, "padding_mode", *borders)
    return site.op(
        "GridSample",
        x,
        site.required("Grid"),
        align_corners=site.integer("align_corners"),
        mode=_MODES[mode],
        padding_mode=site.string("padding_mode"),
    )


def range_(site: Site) -> ir.Value:
    """Write Range as that of ONNX, of scalars; an absent step is 1."""
    first, limit = (scalar(site, x) for x in site.operands("start", "limit"))
    delta = site.input("delta")
    return site.op("Range", first, limit, 1 if delta is None else scalar(site, delta))


def trilu(site: Site) -> ir.Value:
    """Write Trilu as that of ONNX."""
    x, k = site.required("X"), site.input("k")
    inputs = [x] if k is None else [x, scalar(site, k)]
    return site.op("Trilu", *inputs, upper=site.integer("upper"))


# Inverse (ONNX has only Det): elimination, a few nodes for each row.


_LARGEST = 16
"""Largest matrix with a standard form: each row takes two dozen nodes."""


def inverse(site: Site) -> ir.Value:
    """Write Inverse as Gaussian elimination, row by row, with the largest pivot each time.

    Computed in float32 or float64: as exact as the LU decomposition of onnxruntime, but not
    bit-identical. Refuses matrices of unknown size, and matrices larger than 16.
    """
    x, rank = site.required("X"), known_rank(site, site.required("X"))
    sizes = (dims_of(x) or ())[-2:]
    known = [size for size in sizes if isinstance(size, int)]
    if rank < 2 or len(set(known)) > 1:
        raise MalformedNode("operand-shape", f"`X` of `Inverse` is {sizes}, expected a square")
    if not known or known[0] > _LARGEST:
        text = f"matrices of `Inverse` are of size {sizes[0]}, expected a number up to {_LARGEST}"
        raise no_form(text)
    dtype, count = dtype_of(x), known[0]
    wide = computed_in(dtype)
    if count == 0:
        return site.op("Identity", x)
    left = Term(site, x).cast(wide)
    if count == 1:
        return (1 / left).cast(dtype).value
    right = Term(site, site.constant(np.eye(count, dtype=wide.numpy()), "eye"))
    both = Term(site, site.op("Concat", *_eliminated([left, right], 0, count), axis=-1))
    for row in range(1, count):
        (both,) = _eliminated([both], row, count)
    return _part(both, count, 2 * count, -1).cast(dtype).value


def _eliminated(sides: Sequence[Term], row: int, count: int) -> Sequence[Term]:
    """Turn a column of the first matrix into that of the unit matrix by operations on its rows.

    The same operations are applied to the other matrices.

    Args:
        sides: (..., count, at least count), the first one with `row` columns done; one whose rows
            are alike in all of a batch may lack its axes.
        row: Which row and column.
        count: Number of elements.
    """
    left = sides[0]
    lines = [_part(side, row, row + 1, -2) for side in sides]  # (..., 1, count)
    if row < count - 1:
        below = _part(_part(left, row, row + 1, -1), row, count, -2)
        place = abs(below).op("ArgMax", axis=-2) + row  # (..., 1, 1)
        rows = left.em.op("Equal", np.arange(count)[:, None], place)
        mark = Term(left.em, rows).cast(dtype_of(left.value))
        others = 1 - mark
        pivots = [(mark * side).reduce("ReduceSum", [-2]) for side in sides]
        # The row goes where the pivot was. Sums of a product with 0 and one with 1 are exact.
        sides = [others * side + mark * line for side, line in zip(sides, lines, strict=True)]
        lines = pivots
    pivot = _part(lines[0], row, row + 1, -1)
    column = _part(sides[0], row, row + 1, -1)  # (..., count, 1)
    done = []
    for side, line in zip(sides, lines, strict=True):
        scaled = line / pivot
        rest = side - column * scaled
        parts = [_part(rest, 0, row, -2)] if row else []
        parts.append(scaled)
        if row < count - 1:
            parts.append(_part(rest, row + 1, count, -2))
        done.append(Term(left.em, left.em.op("Concat", *parts, axis=-2)))
    return done


def _part(x: Term, start: int, end: int, axis: int) -> Term:
    return x.op("Slice", [start], [end], [axis])
