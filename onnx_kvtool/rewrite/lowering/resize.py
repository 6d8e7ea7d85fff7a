"""Resize, with sizes of the file or of the run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import Term, cast, computed_in, dtype_of, known_dims, size, unsqueeze
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
    wide = dtype if mode == "nearest" else computed_in(dtype)
    result, outside = Term(em, cast(em, data, wide)), []
    for line in _lines(view, em, data, dims):
        x = coordinates(view, line, _count(line.after).cast(_D.FLOAT))  # (after,)
        if line.region is not None:
            outside.append((line, beyond(x, line.before)))
        result = _resized(view, line, x, result, len(dims))
    result = result.cast(dtype)
    for line, mark in outside:
        place = mark.then(unsqueeze, [d for d in range(len(dims)) if d != line.axis])
        fill = np.array(view.real("extrapolation_value")).astype(dtype.numpy())
        result = place.where(em.constant(fill, "fill"), result)
    return em.op("Identity", data) if result.value is data else result.value


def _lines(view: NodeView, em: Emitter, data: ir.Value, dims: tuple[Dim, ...]) -> list[Line]:
    """Return the axes that may change their size."""
    axes = resized_axes(view, len(dims))

    def looked_up(name: str, place: int) -> Term:
        return Term(em, view.required(name)).op("Gather", place)

    befores = [Term(em, size(em, dims[axis], data, axis)).cast(_D.FLOAT) for axis in axes]
    if view.input("sizes") is None:
        scales = [looked_up("scales", place) for place in range(len(axes))]
        lengths = [scale * before for scale, before in zip(scales, befores, strict=True)]
        afters = [length.cast(_D.INT64) for length in lengths]
    else:
        afters = [looked_up("sizes", place).cast(_D.INT64) for place in range(len(axes))]
        lengths = [after.cast(_D.FLOAT) for after in afters]
        scales = [length / before for length, before in zip(lengths, befores, strict=True)]
        policy = view.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = scales[0].op("Min" if policy == "not_larger" else "Max", *scales[1:])
            scales = [scale] * len(axes)
            lengths = [scale * before for before in befores]
            afters = [rounded(length, up=True).cast(_D.INT64) for length in lengths]
    crops = view.string("coordinate_transformation_mode") == "tf_crop_and_resize"
    known = constant_floats(view.input("scales")) if view.input("sizes") is None else None
    lines = []
    for place, axis in enumerate(axes):
        region = None
        if crops:
            ends = (looked_up("roi", p) for p in (place, place + len(axes)))
            first, last = (end.cast(_D.FLOAT) for end in ends)
            region = first, last
        elif known is not None and known.size == len(axes) and known.ravel()[place] == 1:
            continue
        sizes = befores[place], afters[place], lengths[place]
        lines.append(Line(axis, *sizes, scales[place], region))
    return lines


def _count(count: Term) -> Term:
    """Return 0, 1, ... up to below a number: (count,), int64."""
    em = count.em
    if em.opset >= 11:
        return Term(em, em.op("Range", 0, count, 1))
    return count_up(em, count.op("Reshape", [1]))


def _resized(view: NodeView, line: Line, x: Term, data: Term, rank: int) -> Term:
    axis, mode = line.axis, view.string("mode")
    last = line.before - 1

    def rows(places: Term) -> Term:
        return data.op("Gather", clip(places, 0, last).cast(_D.INT64), axis=axis)

    if mode == "nearest":
        return rows(nearest(view.string("nearest_mode"), x))
    a = view.real("cubic_coeff_a")
    cut = view.integer("exclude_outside") != 0
    dtype = dtype_of(data.value)
    if view.integer("antialias", 0):
        places, shares = _spread(line, x, None if mode == "linear" else a, cut)
        factors = shares.cast(dtype).op("Transpose", perm=[1, 0])  # (n, after)
        order = [d for d in range(rank) if d != axis] + [axis]
        product = rows(places).op("Transpose", perm=order).op("MatMul", factors)
        return product.op("Transpose", perm=[order.index(d) for d in range(rank)])
    column = x.then(unsqueeze, [1])
    places, shares = linear_taps(column) if mode == "linear" else cubic_taps(column, a)
    if cut:
        shares = _whole(_inside(places, shares, line.before))
    found = rows(places)  # (..., after, taps, ...)
    behind = list(range(2, 1 + rank - axis))
    factors = (shares.then(unsqueeze, behind) if behind else shares).cast(dtype)
    return (found * factors).reduce("ReduceSum", [axis + 1], keepdims=False)


def _spread(line: Line, x: Term, a: float | None, cut: bool) -> tuple[Term, Term]:
    """Return as many places as a smaller scale spreads each row over, and their shares.

    Rows before the first and behind the last one are these once more, or do not count.
    """
    scale = line.scale.op("Min", 1)
    margin = ((1 if a is None else 2) / scale).op("Ceil")
    count = line.before + (margin + margin)
    places = _count(count.cast(_D.INT64)).cast(_D.FLOAT) - margin  # (n,)
    distance = abs(places - x.then(unsqueeze, [1])) * scale  # (after, n)
    shares = (1 - distance).op("Max", 0) if a is None else _keys(distance, a)
    if cut:
        shares = _inside(places, shares, line.before)
    return places, _whole(shares)


def _keys(distance: Term, a: float) -> Term:
    """Return the shares of Keys' cubic with coefficient `a`."""
    near = (distance * (a + 2) - (a + 3)) * distance * distance + 1
    far = ((distance * a - 5 * a) * distance + 8 * a) * distance - 4 * a
    return (distance > 2).where(0, (distance > 1).where(far, near))


def _inside(places: Term, shares: Term, before: Term) -> Term:
    """Return shares without those of places that the source does not have."""
    return shares * (1 - beyond(places, before).cast(_D.FLOAT))


def _whole(shares: Term) -> Term:
    """Return shares (rows, taps) whose sum is 1 for each row."""
    return shares / shares.reduce("ReduceSum", [1])


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
            sizes = em.op("ScatterElements", em.op("Shape", data), first, sizes)
        factors = constant_floats(scales)
        if factors is not None:
            whole_scales = np.ones(rank, np.float32)
            whole_scales[first] = factors.ravel()
            scales = em.constant(whole_scales, "scales")
        elif scales is not None:
            ones = em.constant(np.ones(rank, np.float32), "ones")
            scales = em.op("ScatterElements", ones, first, scales)
        if roi is not None and roi.dtype is not None:
            whole = np.repeat(np.array([0, 1]), rank).astype(roi.dtype.numpy())
            roi = em.op("ScatterElements", whole, np.concatenate([first, first + rank]), roi)
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
