"""The tables of weights and the places that Resize reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import Term, cast, dtype_of
from onnx_kvtool.guard.wrong_sizes import scaled
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes

# Where the rows of a Resize lie in its source, computed when the model runs.


_D = ir.DataType
_ABOUT = 1e-6
"""How far from a half a coordinate may be for onnxruntime 1.32.0 to round it as one."""


@dataclass(frozen=True, slots=True)
class Line:
    """One axis that is resized; numbers are (), float32, but for `after`.

    Attributes:
        axis: Which one.
        before: Its size.
        after: The size that it gets: (), int64.
        length: That size before it is made a whole number.
        scale: The factor between them.
        region: Where it begins and ends, as shares of the size; for `tf_crop_and_resize` alone.
    """

    axis: int
    before: Term
    after: Term
    length: Term
    scale: Term
    region: tuple[Term, Term] | None


def coordinates(view: NodeView, line: Line, i: Term) -> Term:
    """Return the place in the source of each row of the result: (after,)."""
    ends = line.before - 1  # the last place of the source
    steps = (line.length - 1).op("Max", _ABOUT)  # of one row alone none is taken
    several = (line.length > 1).cast(_D.FLOAT)
    if line.region is not None:
        start, stop = line.region
        spread = start * ends + i * (stop - start) * ends / steps
        middle = (start + stop) * 0.5 * ends
        return spread * several + middle * (1 - several)
    mode = view.string("coordinate_transformation_mode")
    if mode == "asymmetric":
        x = i / line.scale
    elif mode == "align_corners":
        x = i * ends / steps
    elif mode == "half_pixel_symmetric":
        x = _symmetric(line, i)
    else:
        x = (i + 0.5) / line.scale
        if mode != "tf_half_pixel_for_nn":
            x -= 0.5
        if mode == "pytorch_half_pixel":
            x *= several
    # A row whose axis keeps its size is itself, whatever rounding makes of it.
    differs = (line.scale < 1) | (line.scale > 1)
    return differs.op("Reshape", [1]).where(x, i)


def _symmetric(line: Line, i: Term) -> Term:
    """Return the places of `half_pixel_symmetric`: as in onnxruntime the sum is one of float64."""
    adjustment = line.after.cast(_D.FLOAT) / (line.scale * line.before)
    offset = line.before / 2 * (1 - adjustment)
    start, row, scale = (part.cast(_D.DOUBLE) for part in (offset, i, line.scale))
    return (start + (row + 0.5) / scale - 0.5).cast(_D.FLOAT)


def beyond(x: Term, before: Term) -> Term:
    """Return where coordinates lie outside of the source: bool."""
    below = Term(x.em, x.em.op("Greater", 0, x))
    return below | (x > before - 1)


def nearest(mode: str, x: Term) -> Term:
    """Return coordinates made whole, as a `nearest_mode` says."""
    if mode in ("floor", "ceil"):
        return x.op(mode.capitalize())
    return rounded(x, up=mode == "round_prefer_ceil")


def rounded(x: Term, *, up: bool) -> Term:
    """Return whole numbers, of what is about a half the upper or the lower one."""
    low = x.op("Floor")
    rest = x - low  # is exact
    return low + (rest > (0.5 - _ABOUT if up else 0.5 + _ABOUT)).cast(_D.FLOAT)


# Resize of known sizes as weighted sums of rows, for what an opset has no attribute for.


_Numbers = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int64]
FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
"""Element types that are interpolated."""
_MOST_TAPS = 32
_COORDINATES = (
    "align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis that is resized: from `before` to `after` rows, by `scale`."""

    axis: int
    before: int
    after: int
    scale: float


def resized_by_tables(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Resize axis after axis, each row a weighted sum of rows of the source.

        y = Gather(x, place_0) * weight_0 + Gather(x, place_1) * weight_1 + ...

    One row for `nearest`, two for `linear`, four for `cubic`, as many as the text says where
    antialiasing spreads them.

    Returns:
        None where scales, sizes or the sizes of the input are not constant; for the regions of
        `tf_crop_and_resize`; where coordinates are not exact numbers and rounding decides which
        row is the nearest; and where the text leaves open what is meant.
    """
    data, mode = view.required("X"), view.string("mode")
    dtype = data.dtype
    if view.string("coordinate_transformation_mode") not in _COORDINATES or dtype is None:
        return None
    if mode != "nearest" and dtype not in FLOATS:
        return None
    axes = _axes(view, data)
    if axes is None:
        return None
    tables = [table for one in axes if (table := _table(view, one)) is not None]
    if len(tables) < len(axes):
        return None
    rank = len(data.shape or ())
    wide = ir.DataType.FLOAT if dtype == ir.DataType.FLOAT16 and mode != "nearest" else dtype
    result = cast(em, data, wide)
    for one, (places, weights) in zip(axes, tables, strict=True):
        result = _weighted(em, result, one, rank, places, weights)
    if result is data:
        result = em.op("Identity", data)
    return cast(em, result, dtype)


def _weighted(
    em: Emitter,
    data: ir.Value,
    one: _Axis,
    rank: int,
    places: _Places,
    weights: _Numbers | None,
) -> ir.Value:
    total: ir.Value | None = None
    for tap in range(places.shape[1]):
        part = em.op("Gather", data, places[:, tap], axis=one.axis)
        if weights is not None:
            column = weights[:, tap].reshape([-1] + [1] * (rank - one.axis - 1))
            part = em.op("Mul", part, column.astype(dtype_of(data).numpy()))
        total = part if total is None else em.op("Add", total, part)
    assert total is not None
    return total


def resized_axes(view: NodeView, rank: int) -> list[int]:
    """Return `axes` of a Resize, counted from the front; all axes if the node names none."""
    return [counted_axis(axis, rank) for axis in view.integers("axes") or range(rank)]


def _axes(view: Rewritten, data: ir.Value) -> list[_Axis] | None:
    """Return the axes whose rows change; None where something of them is unknown."""
    dims = dims_of(data)
    if dims is None:
        return None
    axes = resized_axes(view, len(dims))
    sizes = view.known(view.input("sizes"))
    if view.input("sizes") is not None:
        if sizes is None or sizes.size != len(axes):
            return None
        return _by_sizes(view, dims, axes, [int(size) for size in sizes.ravel()])
    scales = constant_floats(view.input("scales"))
    if scales is None or scales.size != len(axes):
        return None
    found = []
    for axis, scale in zip(axes, scales.ravel().tolist(), strict=True):
        before = dims[axis]
        if scale == 1.0:
            continue
        if not isinstance(before, int) or before < 1:
            return None
        after = scaled(before, scale)
        if after is None:
            return None
        found.append(_Axis(axis, before, after, scale))
    return found


def _by_sizes(
    view: NodeView, dims: tuple[int | str | None, ...], axes: list[int], sizes: list[int]
) -> list[_Axis] | None:
    policy = view.string("keep_aspect_ratio_policy", "stretch")
    befores = fixed_sizes([dims[axis] for axis in axes])
    if befores is None or 0 in befores:
        return None
    scales = [size / before for size, before in zip(sizes, befores, strict=True)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(axes)
        sizes = [math.floor(scale * before + 0.5) for before in befores]
    lines = zip(axes, befores, sizes, scales, strict=True)
    return [_Axis(*line) for line in lines if line[1] != line[2] or line[3] != 1.0]


def constant_floats(value: ir.Value | None) -> _Numbers | None:
    """Return a few float32 constants; None where they are not constant, or of another type."""
    tensor = None if value is None or value.is_graph_input() else stored_tensor(value)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.size > 64:
        return None
    return np.asarray(tensor.numpy(), np.float64)


def _table(view: NodeView, one: _Axis) -> tuple[_Places, _Numbers | None] | None:
    """Return which rows each row of the result is made of, (after, taps), and their weights."""
    mode = view.string("mode")
    place = view.string("coordinate_transformation_mode")
    x, narrow = (_coordinates(place, one, np.dtype(kind)) for kind in (np.float64, np.float32))
    if x is None or narrow is None or one.after < 1:
        return None
    if mode == "nearest":
        nearest_mode = view.string("nearest_mode")
        rows, other = (_nearest(nearest_mode, c).clip(0, one.before - 1) for c in (x, narrow))
        return (rows[:, None], None) if (rows == other).all() else None
    antialias = view.integer("antialias", 0) != 0
    scale = min(one.scale, 1.0) if antialias else 1.0
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / scale) + 1
    taps = np.arange(first, 2 - first)
    if taps.size > _MOST_TAPS:
        return None
    base = np.ceil(x) - 1  # the row before, so that what is left of the way is in (0, 1]
    distance = np.abs(taps[None, :] - (x - base)[:, None]) * scale
    is_linear = mode == "linear"
    weights = (
        (1 - distance).clip(0, 1) if is_linear else _cubic(distance, view.real("cubic_coeff_a"))
    )
    places = (base[:, None] + taps[None, :]).astype(np.int64)
    if view.integer("exclude_outside"):
        weights = np.where((places < 0) | (places >= one.before), 0.0, weights)
    if antialias or view.integer("exclude_outside"):
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, one.before - 1), weights


def _coordinates(mode: str, one: _Axis, dtype: np.dtype[Any]) -> _Numbers | None:
    """Return the place in the source of each row of the result, computed in a type."""
    i = np.arange(one.after).astype(dtype)
    scale, half = dtype.type(one.scale), dtype.type(0.5)
    exact = one.scale * one.before == one.after
    match mode:
        case "asymmetric":
            x = i / scale
        case "align_corners":
            if not exact or one.after == 1:
                return None  # whether the rounded size is meant is told by nobody
            x = i * dtype.type(one.before - 1) / dtype.type(one.after - 1)
        case "half_pixel" | "pytorch_half_pixel":
            if mode == "pytorch_half_pixel" and one.after == 1:
                return None
            x = (i + half) / scale - half
        case _:
            adjustment = dtype.type(one.after) / (scale * dtype.type(one.before))
            offset = dtype.type(one.before) / 2 * (1 - adjustment)
            x = offset + (i + half) / scale - half
    return np.asarray(x, np.float64)


def _nearest(mode: str, x: _Numbers) -> _Places:
    shift = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(mode, 0)
    return (np.ceil if shift < 0 or mode == "ceil" else np.floor)(x + shift).astype(np.int64)


def _cubic(distance: _Numbers, a: float) -> _Numbers:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
