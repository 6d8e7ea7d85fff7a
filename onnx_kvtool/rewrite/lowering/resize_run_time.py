"""Resize of sizes that are known at run time only, as weighted sums of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, unsqueeze, where
from onnx_kvtool.emit.sampling import Numbers, cubic_taps, linear_taps
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.lowering.early.again import count_up
from onnx_kvtool.rewrite.lowering.resize_places import (
    Line,
    beyond,
    coordinates,
    nearest,
    rounded,
)
from onnx_kvtool.rewrite.lowering.resize_tables import constant_floats
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["resized_at_run_time"]

_D = ir.DataType
_FLOATS = (_D.FLOAT, _D.DOUBLE, _D.FLOAT16)


def resized_at_run_time(view: NodeView, em: Emitter) -> ir.Value | None:
    """Resize axis after axis, with places and shares that are computed when the model runs.

    As in onnxruntime coordinates are numbers of float32, and sizes are scales times sizes in
    float32, cut off. So `nearest` chooses the rows that its kernel chooses, also where rounding
    decides. As in the cases of onnx, and not there, the resized length is not cut off, and what a
    scale or a region makes of rows counts where it makes as many as there were.

        nearest         Gather(x, place)
        linear, cubic   sum over the taps of Gather(x, places) * shares
        antialiasing    MatMul with the shares of all rows

    Returns:
        None for an unknown rank, and for numbers that are no floats unless the mode is `nearest`.
    """
    data, mode = view.required("X"), view.string("mode")
    dims, dtype = dims_of(data), data.dtype
    if dims is None or dtype is None or (mode != "nearest" and dtype not in _FLOATS):
        return None
    numbers = Numbers(em, _D.FLOAT)
    wide = dtype if mode == "nearest" or dtype == _D.DOUBLE else _D.FLOAT
    result, outside = cast(em, data, wide), []
    lines = _lines(view, numbers, data, dims)
    for line in lines:
        rows = cast(em, _count(em, line.after), _D.FLOAT)  # (after,)
        x = coordinates(view, numbers, line, rows)
        if line.region is not None:
            outside.append((line, beyond(numbers, x, line.before)))
        result = _resized(view, numbers, line, x, result, len(dims))
    result = cast(em, result, dtype)
    fill = view.attribute("extrapolation_value") if outside else None
    number = np.array(fill if isinstance(fill, (int, float)) else 0.0)
    for line, mark in outside:
        place = unsqueeze(em, mark, [d for d in range(len(dims)) if d != line.axis])
        filling = em.constant(number.astype(dtype.numpy()), "fill")
        result = where(em, place, filling, result, "cut")
    if result is data:
        result = em.op("Identity", data, dtype=dtype)
    return result


def _lines(view: NodeView, numbers: Numbers, data: ir.Value, dims: tuple[Dim, ...]) -> list[Line]:
    """Return the axes that may change their size."""
    em, names = numbers.em, view.facts.attributes
    given = view.attribute("axes") if "axes" in names else None
    axes = list(range(len(dims)))
    if isinstance(given, tuple) and given:
        axes = [counted_axis(axis, len(dims)) for axis in given if isinstance(axis, int)]

    def looked_up(name: str, place: int) -> ir.Value:
        value = view.required(name)
        dtype = value.dtype or _D.FLOAT
        return em.op("Gather", value, em.constant(place, "axis"), dtype=dtype, hint=name)

    befores = [cast(em, size(em, dims[axis], data, axis), numbers.dtype) for axis in axes]
    if view.input("sizes") is None:
        scales = [looked_up("scales", place) for place in range(len(axes))]
        lengths = [numbers.op("Mul", *pair) for pair in zip(scales, befores, strict=True)]
        afters = [cast(em, length, _D.INT64) for length in lengths]
    else:
        afters = [cast(em, looked_up("sizes", place), _D.INT64) for place in range(len(axes))]
        lengths = [cast(em, after, numbers.dtype) for after in afters]
        scales = [numbers.op("Div", *pair) for pair in zip(lengths, befores, strict=True)]
        policy = "stretch"
        if "keep_aspect_ratio_policy" in names:
            policy = view.string("keep_aspect_ratio_policy")
        if policy != "stretch":
            scale = numbers.op("Min" if policy == "not_larger" else "Max", *scales)
            scales = [scale] * len(axes)
            lengths = [numbers.op("Mul", scale, before) for before in befores]
            whole = (rounded(numbers, length, up=True) for length in lengths)
            afters = [cast(em, after, _D.INT64) for after in whole]
    crops = view.string("coordinate_transformation_mode") == "tf_crop_and_resize"
    known = constant_floats(view.input("scales")) if view.input("sizes") is None else None
    lines = []
    for place, axis in enumerate(axes):
        region = None
        if crops:
            ends = (looked_up("roi", p) for p in (place, place + len(axes)))
            first, last = (cast(em, end, numbers.dtype) for end in ends)
            region = first, last
        elif known is not None and known.size == len(axes) and known.ravel()[place] == 1:
            continue
        sizes = befores[place], afters[place], lengths[place]
        lines.append(Line(axis, *sizes, scales[place], region))
    return lines


def _count(em: Emitter, count: ir.Value) -> ir.Value:
    """Return 0, 1, ... up to below a number: (count,), int64."""
    if em.opset >= 11:
        return em.op("Range", em.constant(0), count, em.constant(1), hint="rows")
    return count_up(em, em.op("Reshape", count, em.constant([1], "one")))


def _resized(
    view: NodeView, numbers: Numbers, line: Line, x: ir.Value, data: ir.Value, rank: int
) -> ir.Value:
    mode = view.string("mode")
    last = numbers.op("Sub", line.before, 1)

    def index(places: ir.Value) -> ir.Value:
        return cast(numbers.em, numbers.clip(places, 0, last), _D.INT64, "places")

    if mode == "nearest":
        places = index(nearest(numbers, view.string("nearest_mode"), x))
        return _rows(numbers.em, data, places, line.axis)
    coefficient = view.attribute("cubic_coeff_a")
    a = float(coefficient) if isinstance(coefficient, (int, float)) else -0.75
    cut = view.integer("exclude_outside") != 0
    if "antialias" in view.facts.attributes and view.integer("antialias"):
        return _spread(numbers, line, x, data, rank, None if mode == "linear" else a, cut, index)
    column = unsqueeze(numbers.em, x, [1])
    taps = linear_taps(numbers, column) if mode == "linear" else cubic_taps(numbers, column, a)
    places, shares = taps  # (after, taps)
    if cut:
        shares = _whole(numbers, _inside(numbers, places, shares, line.before), 1)
    rows = _rows(numbers.em, data, index(places), line.axis)  # (..., after, taps, ...)
    dtype = data.dtype or _D.UNDEFINED
    behind = list(range(2, 2 + rank - line.axis - 1))
    factors = cast(numbers.em, unsqueeze(numbers.em, shares, behind) if behind else shares, dtype)
    parts = numbers.em.op("Mul", rows, factors, dtype=dtype, hint="parts")
    return reduce(numbers.em, "ReduceSum", parts, [line.axis + 1], keepdims=False)


def _rows(em: Emitter, data: ir.Value, places: ir.Value, axis: int) -> ir.Value:
    dtype = data.dtype or _D.UNDEFINED
    return em.op("Gather", data, places, attributes={"axis": axis}, dtype=dtype, hint="rows")


def _spread(
    numbers: Numbers,
    line: Line,
    x: ir.Value,
    data: ir.Value,
    rank: int,
    a: float | None,
    cut: bool,
    index: Callable[[ir.Value], ir.Value],
) -> ir.Value:
    """Return sums of as many rows as a smaller scale spreads each row over.

    Rows before the first and behind the last one are these once more, or do not count.
    """
    em, op = numbers.em, numbers.op
    scale = op("Min", line.scale, 1)
    margin = op("Ceil", op("Div", 1 if a is None else 2, scale))
    count = op("Add", line.before, op("Add", margin, margin))
    steps = cast(em, _count(em, cast(em, count, _D.INT64)), numbers.dtype)
    places = op("Sub", steps, margin)  # (n,)
    distance = op("Abs", op("Sub", places, unsqueeze(em, x, [1])))  # (after, n)
    distance = op("Mul", distance, scale)
    shares = _keys(numbers, distance, a) if a is not None else op("Sub", 1, distance)
    if a is None:
        shares = op("Max", shares, 0)
    if cut:
        shares = _inside(numbers, places, shares, line.before)
    dtype = data.dtype or _D.UNDEFINED
    shares = cast(em, _whole(numbers, shares, 1), dtype)
    rows = _rows(em, data, index(places), line.axis)
    order = [d for d in range(rank) if d != line.axis] + [line.axis]
    back = [order.index(d) for d in range(rank)]
    turned = em.op("Transpose", rows, attributes={"perm": order}, dtype=dtype)
    factors = em.op("Transpose", shares, attributes={"perm": [1, 0]}, dtype=dtype)  # (n, after)
    product = em.op("MatMul", turned, factors, dtype=dtype)
    return em.op("Transpose", product, attributes={"perm": back}, dtype=dtype)


def _keys(numbers: Numbers, distance: ir.Value, a: float) -> ir.Value:
    """Return the shares of Keys' cubic with coefficient `a`."""
    op = numbers.op
    near = op("Sub", op("Mul", distance, a + 2), a + 3)
    near = op("Add", op("Mul", op("Mul", near, distance), distance), 1)
    far = op("Sub", op("Mul", distance, a), 5 * a)
    far = op("Sub", op("Mul", op("Add", op("Mul", far, distance), 8 * a), distance), 4 * a)
    zero = numbers.constant(0)
    is_far = numbers.is_greater(distance, numbers.constant(1))
    is_out = numbers.is_greater(distance, numbers.constant(2))
    return where(numbers.em, is_out, zero, where(numbers.em, is_far, far, near))


def _inside(numbers: Numbers, places: ir.Value, shares: ir.Value, before: ir.Value) -> ir.Value:
    """Return shares without those of places that the source does not have."""
    outside = cast(numbers.em, beyond(numbers, places, before), numbers.dtype)
    return numbers.op("Mul", shares, numbers.op("Sub", 1, outside))


def _whole(numbers: Numbers, shares: ir.Value, axis: int) -> ir.Value:
    """Return shares whose sum is 1."""
    return numbers.op("Div", shares, reduce(numbers.em, "ReduceSum", shares, [axis]))
