"""Where the rows of a Resize lie in its source, computed when the model runs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.emit.forms import cast, where
from onnx_kvtool.emit.sampling import Numbers
from onnx_kvtool.ops.view import NodeView

__all__ = ["Line", "beyond", "coordinates", "nearest", "rounded"]

_D = ir.DataType
_ORDERS = ("Less", "Greater")
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
    before: ir.Value
    after: ir.Value
    length: ir.Value
    scale: ir.Value
    region: tuple[ir.Value, ir.Value] | None


def coordinates(view: NodeView, numbers: Numbers, line: Line, i: ir.Value) -> ir.Value:
    """Return the place in the source of each row of the result: (after,)."""
    op = numbers.op
    ends = op("Sub", line.before, 1)  # the last place of the source
    steps = op("Max", op("Sub", line.length, 1), _ABOUT)  # of one row alone none is taken
    is_long = numbers.is_greater(line.length, numbers.constant(1))
    several = cast(numbers.em, is_long, numbers.dtype)
    if line.region is not None:
        start, stop = line.region
        way = op("Mul", op("Mul", i, op("Sub", stop, start)), ends)
        spread = op("Add", op("Mul", start, ends), op("Div", way, steps))
        middle = op("Mul", op("Mul", op("Add", start, stop), 0.5), ends)
        alone = op("Sub", 1, several)
        return op("Add", op("Mul", spread, several), op("Mul", middle, alone))
    mode = view.string("coordinate_transformation_mode")
    if mode == "asymmetric":
        x = op("Div", i, line.scale)
    elif mode == "align_corners":
        x = op("Div", op("Mul", i, ends), steps)
    elif mode == "half_pixel_symmetric":
        x = _symmetric(numbers, line, i)
    else:
        x = op("Div", op("Add", i, 0.5), line.scale)
        if mode != "tf_half_pixel_for_nn":
            x = op("Sub", x, 0.5)
        if mode == "pytorch_half_pixel":
            x = op("Mul", x, several)
    # A row whose axis keeps its size is itself, whatever rounding makes of it.
    em = numbers.em
    sides = (em.op(name, line.scale, numbers.constant(1), dtype=_D.BOOL) for name in _ORDERS)
    differs = em.op("Or", *sides, dtype=_D.BOOL, hint="differs")
    return where(em, em.op("Reshape", differs, em.constant([1]), dtype=_D.BOOL), x, i, "x")


def _symmetric(numbers: Numbers, line: Line, i: ir.Value) -> ir.Value:
    """Return the places of `half_pixel_symmetric`: as in onnxruntime the sum is one of float64."""
    op, wide = numbers.op, Numbers(numbers.em, _D.DOUBLE)
    after = cast(numbers.em, line.after, numbers.dtype)
    adjustment = op("Div", after, op("Mul", line.scale, line.before))
    offset = op("Mul", op("Div", line.before, 2), op("Sub", 1, adjustment))
    parts = (cast(numbers.em, part, wide.dtype) for part in (offset, i, line.scale))
    start, row, scale = parts
    place = wide.op("Add", start, wide.op("Div", wide.op("Add", row, 0.5), scale))
    return cast(numbers.em, wide.op("Sub", place, 0.5), numbers.dtype)


def beyond(numbers: Numbers, x: ir.Value, before: ir.Value) -> ir.Value:
    """Return where coordinates lie outside of the source: bool."""
    below = numbers.is_greater(numbers.constant(0), x)
    behind = numbers.is_greater(x, numbers.op("Sub", before, 1))
    return numbers.em.op("Or", below, behind, dtype=_D.BOOL, hint="outside")


def nearest(numbers: Numbers, mode: str, x: ir.Value) -> ir.Value:
    """Return coordinates made whole, as a `nearest_mode` says."""
    if mode in ("floor", "ceil"):
        return numbers.op(mode.capitalize(), x)
    return rounded(numbers, x, up=mode == "round_prefer_ceil")


def rounded(numbers: Numbers, x: ir.Value, *, up: bool) -> ir.Value:
    """Return whole numbers, of what is about a half the upper or the lower one."""
    em, low = numbers.em, numbers.op("Floor", x)
    rest = numbers.op("Sub", x, low)  # is exact
    bound = numbers.constant(0.5 - _ABOUT if up else 0.5 + _ABOUT)
    more = cast(em, numbers.is_greater(rest, bound), numbers.dtype)
    return numbers.op("Add", low, more)
