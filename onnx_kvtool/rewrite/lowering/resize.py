"""Resize, with sizes of the file or of the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of, known_dims, reduce, size, unsqueeze, where
from onnx_kvtool.emit.sampling import clip, cubic_taps, linear_taps
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import again, count_up
from onnx_kvtool.rewrite.lowering.resize_tables import (
    FLOATS,
    Line,
    beyond,
    constant_floats,
    coordinates,
    nearest,
    resized_axes,
    resized_by_tables,
    rounded,
)
from onnx_kvtool.symbolic.dimensions import Dim, dims_of, fixed_sizes

# Resize as weighted sums of rows.


_D = ir.DataType


def resized(view: Rewritten, em: Emitter) -> Replacement | None:
    """Resize by tables where sizes are known, else at run time; None where neither can."""
    written, via = resized_by_tables(view, em), "tables"
    if written is None:
        written, via = _resized_at_run_time(view, em), "run_time"
    return None if written is None else Replacement((written,), via=via)


def _resized_at_run_time(view: NodeView, em: Emitter) -> ir.Value | None:
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
    if dims is None or dtype is None or (mode != "nearest" and dtype not in FLOATS):
        return None
    wide = dtype if mode == "nearest" or dtype == _D.DOUBLE else _D.FLOAT
    result, outside = cast(em, data, wide), []
    lines = _lines(view, em, data, dims)
    for line in lines:
        rows = cast(em, _count(em, line.after), _D.FLOAT)  # (after,)
        x = coordinates(view, em, line, rows)
        if line.region is not None:
            outside.append((line, beyond(em, x, line.before)))
        result = _resized(view, em, line, x, result, len(dims))
    result = cast(em, result, dtype)
    for line, mark in outside:
        place = unsqueeze(em, mark, [d for d in range(len(dims)) if d != line.axis])
        fill = np.array(view.real("extrapolation_value")).astype(dtype.numpy())
        result = where(em, place, em.constant(fill, "fill"), result, "cut")
    if result is data:
        result = em.op("Identity", data)
    return result


def _lines(view: NodeView, em: Emitter, data: ir.Value, dims: tuple[Dim, ...]) -> list[Line]:
    """Return the axes that may change their size."""
    axes = resized_axes(view, len(dims))

    def looked_up(name: str, place: int) -> ir.Value:
        return em.op("Gather", view.required(name), place, hint=name)

    befores = [cast(em, size(em, dims[axis], data, axis), _D.FLOAT) for axis in axes]
    if view.input("sizes") is None:
        scales = [looked_up("scales", place) for place in range(len(axes))]
        lengths = [em.op("Mul", *pair) for pair in zip(scales, befores, strict=True)]
        afters = [cast(em, length, _D.INT64) for length in lengths]
    else:
        afters = [cast(em, looked_up("sizes", place), _D.INT64) for place in range(len(axes))]
        lengths = [cast(em, after, _D.FLOAT) for after in afters]
        scales = [em.op("Div", *pair) for pair in zip(lengths, befores, strict=True)]
        policy = view.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = em.op("Min" if policy == "not_larger" else "Max", *scales)
            scales = [scale] * len(axes)
            lengths = [em.op("Mul", scale, before) for before in befores]
            whole = (rounded(em, length, up=True) for length in lengths)
            afters = [cast(em, after, _D.INT64) for after in whole]
    crops = view.string("coordinate_transformation_mode") == "tf_crop_and_resize"
    known = constant_floats(view.input("scales")) if view.input("sizes") is None else None
    lines = []
    for place, axis in enumerate(axes):
        region = None
        if crops:
            ends = (looked_up("roi", p) for p in (place, place + len(axes)))
            first, last = (cast(em, end, _D.FLOAT) for end in ends)
            region = first, last
        elif known is not None and known.size == len(axes) and known.ravel()[place] == 1:
            continue
        sizes = befores[place], afters[place], lengths[place]
        lines.append(Line(axis, *sizes, scales[place], region))
    return lines


def _count(em: Emitter, count: ir.Value) -> ir.Value:
    """Return 0, 1, ... up to below a number: (count,), int64."""
    if em.opset >= 11:
        return em.op("Range", 0, count, 1)
    return count_up(em, em.op("Reshape", count, [1])).value


def _resized(
    view: NodeView, em: Emitter, line: Line, x: ir.Value, data: ir.Value, rank: int
) -> ir.Value:
    mode = view.string("mode")
    last = em.op("Sub", line.before, 1)

    def index(places: ir.Value) -> ir.Value:
        return cast(em, clip(em, places, 0, last), _D.INT64, "places")

    if mode == "nearest":
        places = index(nearest(em, view.string("nearest_mode"), x))
        return _rows(em, data, places, line.axis)
    a = view.real("cubic_coeff_a")
    cut = view.integer("exclude_outside") != 0
    if view.integer("antialias", 0):
        return _spread(em, line, x, data, rank, None if mode == "linear" else a, cut, index)
    column = unsqueeze(em, x, [1])
    taps = linear_taps(em, column) if mode == "linear" else cubic_taps(em, column, a)
    places, shares = taps  # (after, taps)
    if cut:
        shares = _whole(em, _inside(em, places, shares, line.before))
    rows = _rows(em, data, index(places), line.axis)  # (..., after, taps, ...)
    dtype = dtype_of(data)
    behind = list(range(2, 2 + rank - line.axis - 1))
    factors = cast(em, unsqueeze(em, shares, behind) if behind else shares, dtype)
    parts = em.op("Mul", rows, factors, hint="parts")
    return reduce(em, "ReduceSum", parts, [line.axis + 1], keepdims=False)


def _rows(em: Emitter, data: ir.Value, places: ir.Value, axis: int) -> ir.Value:
    return em.op("Gather", data, places, axis=axis, hint="rows")


def _spread(
    em: Emitter,
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
    op = em.op
    scale = op("Min", line.scale, 1)
    margin = op("Ceil", op("Div", 1 if a is None else 2, scale))
    count = op("Add", line.before, op("Add", margin, margin))
    steps = cast(em, _count(em, cast(em, count, _D.INT64)), _D.FLOAT)
    places = op("Sub", steps, margin)  # (n,)
    distance = op("Abs", op("Sub", places, unsqueeze(em, x, [1])))  # (after, n)
    distance = op("Mul", distance, scale)
    shares = _keys(em, distance, a) if a is not None else op("Sub", 1, distance)
    if a is None:
        shares = op("Max", shares, 0)
    if cut:
        shares = _inside(em, places, shares, line.before)
    dtype = dtype_of(data)
    shares = cast(em, _whole(em, shares), dtype)
    rows = _rows(em, data, index(places), line.axis)
    order = [d for d in range(rank) if d != line.axis] + [line.axis]
    back = [order.index(d) for d in range(rank)]
    factors = op("Transpose", shares, perm=[1, 0])  # (n, after)
    product = op("MatMul", op("Transpose", rows, perm=order), factors)
    return op("Transpose", product, perm=back)


def _keys(em: Emitter, distance: ir.Value, a: float) -> ir.Value:
    """Return the shares of Keys' cubic with coefficient `a`."""
    op = em.op
    near = op("Sub", op("Mul", distance, a + 2), a + 3)
    near = op("Add", op("Mul", op("Mul", near, distance), distance), 1)
    far = op("Sub", op("Mul", distance, a), 5 * a)
    far = op("Sub", op("Mul", op("Add", op("Mul", far, distance), 8 * a), distance), 4 * a)
    found = where(em, op("Greater", distance, 1), far, near)
    return where(em, op("Greater", distance, 2), 0, found)


def _inside(em: Emitter, places: ir.Value, shares: ir.Value, before: ir.Value) -> ir.Value:
    """Return shares without those of places that the source does not have."""
    outside = cast(em, beyond(em, places, before), _D.FLOAT)
    return em.op("Mul", shares, em.op("Sub", 1, outside))


def _whole(em: Emitter, shares: ir.Value) -> ir.Value:
    """Return shares (rows, taps) whose sum is 1 for each row."""
    return em.op("Div", shares, reduce(em, "ReduceSum", shares, [1]))


# Resize-19, for opsets below 19 and below 13.


def lower_resize_19(view: Rewritten, em: Emitter) -> Replacement:
    """Spread sizes, scales and regions of some axes over all of them; fill in empty inputs.

    An axis that is not named keeps its size: its scale is 1, its region 0 to 1. Below 13 `roi` and
    `scales` are required, and empty ones stand for absent ones.

    Antialiasing, sizes that keep the aspect ratio (the scale is then that of one axis, which
    neither sizes nor scales can say) and `half_pixel_symmetric` are written as weighted sums of
    rows: by tables where scales or sizes and the sizes of the input are constant, else with places
    and shares that are computed when the model runs, as onnxruntime computes them.

    Refuses these of an unknown rank, and of integers unless the mode is `nearest`; `axes` for an
    unknown rank; and the mode `tf_half_pixel_for_nn`, which went with opset 13.
    """
    data = view.required("X")
    roi, scales, sizes = view.input("roi"), view.input("scales"), view.input("sizes")
    lacking = _lacking(view, em.opset)
    if lacking is not None:
        if (written := resized(view, em)) is None:
            raise lacking
        return written
    axes = view.integers("axes")
    if axes and em.opset < 18:
        rank = len(known_dims(data, "Resize has no `axes` before opset 18, and "))
        first = np.array(axes, np.int64) % rank
        known, dims = view.known(sizes), fixed_sizes(dims_of(data))
        if known is not None and dims is not None:
            whole_sizes = np.array(dims, np.int64)
            whole_sizes[first] = known.ravel()
            sizes = em.constant(whole_sizes, "sizes")
        elif sizes is not None:
            sizes = em.op("ScatterElements", em.op("Shape", data), first, sizes, hint="sizes")
        factors = constant_floats(scales)
        if factors is not None:
            whole_scales = np.ones(rank, np.float32)
            whole_scales[first] = factors.ravel()
            scales = em.constant(whole_scales, "scales")
        elif scales is not None:
            ones = em.constant(np.ones(rank, np.float32), "ones")
            scales = em.op("ScatterElements", ones, first, scales, hint="scales")
        if roi is not None and roi.dtype is not None:
            whole = np.repeat(np.array([0, 1]), rank).astype(roi.dtype.numpy())
            roi = em.op(
                "ScatterElements", whole, np.concatenate([first, first + rank]), roi, hint="roi"
            )
    if em.opset < 13:
        nothing = em.constant(np.zeros(0, np.float32), "nothing")
        roi, scales = roi or nothing, scales or nothing
    return again(em, view.node, [data, roi, scales, sizes])


def _lacking(view: NodeView, opset: int) -> Refusal | None:
    """Return the refusal of an attribute that the target does not have; None if it has all."""
    if opset < 18 and view.integer("antialias", 0):
        return Refusal("attribute", "`antialias` does not exist before opset 18")
    policy = view.string("keep_aspect_ratio_policy", "stretch")
    if opset < 18 and policy != "stretch" and view.input("sizes") is not None:
        text = f"`keep_aspect_ratio_policy={policy}` does not exist before opset 18"
        return Refusal("attribute-value", text)
    mode = view.string("coordinate_transformation_mode")
    if opset < 19 and mode == "half_pixel_symmetric":
        text = f"`coordinate_transformation_mode={mode}` does not exist before opset 19"
        return Refusal("attribute-value", text)
    return None
