"""GridSample-20 and GridSample-16, for older opsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.emit.forms import cast, where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sampling import (
    Axis,
    Numbers,
    blended,
    combined,
    cubic_taps,
    linear_taps,
    pixel_rows,
)
from onnx_kvtool.emit.sizes import positions
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

if TYPE_CHECKING:
    from onnx_kvtool.emit.emitter import Emitter

__all__ = ["lower_grid_sample_20"]

_OLD_NAMES = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
_NEW_NAMES = {old: new for new, old in _OLD_NAMES.items()}
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def lower_grid_sample_20(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the modes the names they had for images; below 16, and for volumes, gather the pixels.

    x = ((grid + 1) * size - 1) / 2;   y = sum of the pixels around x, each by its share

    A pixel outside is one of a margin of zeros, or that at the border, or at the place to which
    its position is reflected. With `cubic` and `border` only coordinates beyond the outer half of
    the outermost pixels are moved to the border, each for itself, as onnx.reference has it.

    Refuses an unknown rank, and what is not a float but for `nearest`.
    """
    view = NodeView(node, context.opset_of(node))
    data, grid, mode = view.required("X"), view.required("grid"), view.string("mode")
    mode, dtype = _NEW_NAMES.get(mode, mode), data.dtype
    dims = dims_of(data)
    if dims is None or dtype is None or grid.dtype is None:
        text = f"GridSample before opset 20 depends on the rank of `{data.name}`, which is unknown"
        raise Refusal("unknown-rank", text, help="declare the shape of the input")
    padding, is_aligned = view.string("padding_mode"), view.integer("align_corners") != 0
    is_renamed = context.opset_of(node) >= 20 > em.opset >= 16 and context.keep_fused
    if is_renamed and len(dims) == 4:
        attributes: dict[str, int | str] = {
            "align_corners": int(is_aligned),
            "mode": _OLD_NAMES[mode],
            "padding_mode": padding,
        }
        return Replacement((em.op("GridSample", data, grid, attributes=attributes, dtype=dtype),))
    if mode != "nearest" and dtype not in FLOAT_TYPES:
        text = f"GridSample of {dtype.name} is written for `nearest` only"
        raise Refusal("element-type", text)
    sampler = _Sampler(Numbers(em, grid.dtype if grid.dtype in _WIDE else ir.DataType.FLOAT))
    wide = dtype if mode == "nearest" or dtype in _WIDE else ir.DataType.FLOAT
    result = sampler.sampled(cast(em, data, wide), grid, dims, mode, padding, is_aligned)
    return Replacement((cast(em, result, dtype),), via="gathered")


class _Sampler:
    """What is emitted for one node.

    Args:
        numbers: The type of the coordinates.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.em = numbers.em

    def sampled(
        self,
        data: ir.Value,
        grid: ir.Value,
        dims: tuple[Dim, ...],
        mode: str,
        padding: str,
        is_aligned: bool,
    ) -> ir.Value:
        """Return the samples: (N, C, o1, ..., ok) of (N, C, D1, ..., Dk) at (N, o1, ..., ok, k)."""
        em, numbers, rank = self.em, self.numbers, len(dims)
        grid = cast(em, grid, numbers.dtype)
        axes, places, shares = [], [], []
        for place in range(2, rank):
            axis = Axis(dims[place], data, place, int(padding == "zeros"))
            column = em.constant([rank - 1 - place], "column")  # the last axis comes first
            last = {"axis": rank - 1}
            n = em.op("Gather", grid, column, attributes=last, dtype=numbers.dtype)  # (N, ..., 1)
            x = self._position(n, axis, is_aligned)
            x = numbers.op("Round", x) if mode == "nearest" else x
            x = self._padded(x, axis, mode, padding, is_aligned)
            share = None
            if mode == "linear":
                x, share = linear_taps(numbers, x)
            elif mode == "cubic":
                x, share = cubic_taps(numbers, x, -0.75)
            if padding == "reflection" and mode != "nearest":
                x = self._reflected(x, axis, is_aligned)
            axes.append(axis)
            places.append(axis.index(numbers, x))
            if share is not None:
                shares.append(cast(em, share, data.dtype or ir.DataType.UNDEFINED))
        start = None
        if dims[0] != 1:
            start = positions(em, dims[0], data, 0, place=0, rank=rank)  # (N, 1, ..., 1)
        index, weight = combined(em, start, axes, places, shares, _TAPS[mode], rank)
        rows = pixel_rows(em, data, rank, int(padding == "zeros"))
        result = blended(em, rows, index, weight, rank)  # (N, o1, ..., ok, C)
        back = {"perm": [0, rank - 1, *range(1, rank - 1)]}
        dtype = data.dtype or ir.DataType.UNDEFINED
        return em.op("Transpose", result, attributes=back, dtype=dtype)

    def _position(self, n: ir.Value, axis: Axis, is_aligned: bool) -> ir.Value:
        """Return where -1 to 1 is in pixels, by the arithmetic of the text, in its order."""
        numbers, more = self.numbers, self.numbers.op("Add", n, 1)
        if is_aligned:
            return numbers.op("Mul", numbers.op("Div", more, 2), axis.length(numbers, -1))
        scaled = numbers.op("Mul", more, axis.length(numbers))
        return numbers.op("Div", numbers.op("Sub", scaled, 1), 2)

    def _borders(self, axis: Axis, is_aligned: bool) -> tuple[ir.Value | float, ir.Value]:
        numbers = self.numbers
        if is_aligned:
            return 0, axis.length(numbers, -1)
        return -0.5, axis.length(numbers, -0.5)

    def _padded(
        self, x: ir.Value, axis: Axis, mode: str, padding: str, is_aligned: bool
    ) -> ir.Value:
        """Return positions of which each tap is at most two pixels outside."""
        numbers = self.numbers
        if padding == "reflection":
            return self._reflected(x, axis, is_aligned)
        if padding == "zeros":
            # Three pixels outside there is nothing but zeros, and this is a number.
            return numbers.clip(x, -3, axis.length(numbers, 2))
        held = numbers.clip(x, 0, axis.length(numbers, -1))
        if mode != "cubic":
            return held
        inside = numbers.clip(x, *self._borders(axis, is_aligned))
        is_inside = self.em.op("Equal", inside, x, dtype=ir.DataType.BOOL)
        return where(self.em, is_inside, x, held)

    def _reflected(self, x: ir.Value, axis: Axis, is_aligned: bool) -> ir.Value:
        """Return positions thrown back from the borders, as often as it takes.

        d = |x - low|;   n = floor(d / (high - low));   low + rest, or high - rest for an odd n
        """
        numbers = self.numbers
        low, high = self._borders(axis, is_aligned)
        way = numbers.op("Sub", x, low) if low else x
        # Between the centres of one pixel there is no way; any length will do.
        length = axis.length(numbers, -1 if is_aligned else 0)
        if is_aligned and (axis.dim == 1 or not isinstance(axis.dim, int)):
            length = numbers.op("Max", length, 1)
        distance = numbers.op("Abs", way)
        times = numbers.op("Floor", numbers.op("Div", distance, length))
        rest = numbers.op("Sub", distance, numbers.op("Mul", times, length))
        even = numbers.op("Mul", numbers.op("Floor", numbers.op("Div", times, 2)), 2)
        is_odd = numbers.is_greater(times, even)
        forth = numbers.op("Add", rest, low) if low else rest
        back = numbers.op("Sub", high, rest)
        return numbers.clip(where(self.em, is_odd, back, forth), low, high)
