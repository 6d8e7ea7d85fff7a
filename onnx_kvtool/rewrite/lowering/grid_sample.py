"""GridSample and AffineGrid, with what lies beyond the border of an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.core.words import counted
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    again,
    cast,
    channels_first,
    computed_in,
    dtype_of,
    positions,
    unsqueeze,
)
from onnx_kvtool.emit.sampling import (
    Axis,
    Number,
    blended,
    clip,
    combined,
    cubic_taps,
    linear_taps,
    pixel_rows,
)
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.rewrite.engine.dtypes import CARRIERS, takes
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import Dims, dims_of

# GridSample-20 and GridSample-16, for older opsets.


NEW_NAMES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
"""The modes since opset 20, by their names before."""

_OLD_NAMES = {new: old for old, new in NEW_NAMES.items()}
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


def lower_grid_sample_20(view: Rewritten, em: Emitter) -> Replacement:
    """Give the modes the names they had for images; below 16, and for volumes, gather the pixels.

    x = ((grid + 1) * size - 1) / 2;   y = sum of the pixels around x, each by its share

    A pixel outside is one of a margin of zeros, or that at the border, or at the place to which
    its position is reflected. With `cubic` and `border` only coordinates beyond the outer half of
    the outermost pixels are moved to the border, each for itself, as onnx.reference has it.

    Refuses an unknown rank, and what is not a float but for `nearest`.
    """
    data, grid, mode = view.required("X"), view.required("grid"), view.string("mode")
    mode, dtype = NEW_NAMES.get(mode, mode), data.dtype
    dims = dims_of(data)
    if dims is None or dtype is None or grid.dtype is None:
        text = f"GridSample before opset 20 depends on the rank of `{data.name}`, which is unknown"
        raise Refusal("unknown-rank", text, help="declare the shape of the input")
    padding, is_aligned = view.string("padding_mode"), view.integer("align_corners") != 0
    is_renamed = view.opset >= 20 > em.opset >= 16 and view.context.keep_fused
    if is_renamed and len(dims) == 4:
        return again(em, view.node, attributes={"mode": _OLD_NAMES[mode]})
    if mode != "nearest" and dtype not in FLOAT_TYPES:
        text = f"GridSample of {dtype.name} is written for `nearest` only"
        raise Refusal("element-type", text)
    kind = computed_in(grid.dtype)
    wide = dtype if mode == "nearest" else computed_in(dtype)
    sampler = _Sampler(em, kind, mode, padding, is_aligned)
    result = sampler.sampled(cast(em, data, wide), cast(em, grid, kind), dims)
    return Replacement((cast(em, result, dtype),), via="gathered")


@dataclass(frozen=True, slots=True)
class _Sampler:
    """What is emitted for one node, by its attributes; `dtype` is the type of the coordinates."""

    em: Emitter
    dtype: ir.DataType
    mode: str
    padding: str
    is_aligned: bool

    def sampled(self, data: ir.Value, grid: ir.Value, dims: Dims) -> ir.Value:
        """Return the samples: (N, C, o1, ..., ok) of (N, C, D1, ..., Dk) at (N, o1, ..., ok, k)."""
        em, rank, margin = self.em, len(dims), int(self.padding == "zeros")
        axes, places, shares = [], [], []
        for place in range(2, rank):
            axis = Axis(em, self.dtype, dims[place], data, place, margin)
            n = em.op("Gather", grid, [rank - 1 - place], axis=rank - 1)  # (N, ..., 1)
            x = self._position(Term(em, n), axis)
            x = self._padded(x.op("Round") if self.mode == "nearest" else x, axis)
            if self.mode != "nearest":
                x, share = linear_taps(x) if self.mode == "linear" else cubic_taps(x)
                x = self._reflected(x, axis) if self.padding == "reflection" else x
                shares.append(share.cast(dtype_of(data)))
            axes.append(axis)
            places.append(axis.index(x))
        start = None
        if dims[0] != 1:
            start = positions(em, data, 0, place=0, rank=rank, dim=dims[0])  # (N, 1, ..., 1)
        index, weight = combined(start, axes, places, shares, _TAPS[self.mode], rank)
        result = blended(em, pixel_rows(em, data, rank, margin), index, weight, rank)
        return channels_first(em, result, rank)  # of (N, o1, ..., ok, C)

    def _position(self, n: Term, axis: Axis) -> Term:
        """Return where -1 to 1 is in pixels, by the arithmetic of the text, in its order."""
        if self.is_aligned:
            return (n + 1) / 2 * axis.length(-1)
        return ((n + 1) * axis.length() - 1) / 2

    def _borders(self, axis: Axis) -> tuple[float, Number]:
        return (0, axis.length(-1)) if self.is_aligned else (-0.5, axis.length(-0.5))

    def _padded(self, x: Term, axis: Axis) -> Term:
        """Return positions that leave each tap at most two pixels outside."""
        if self.padding == "reflection":
            return self._reflected(x, axis)
        if self.padding == "zeros":
            # Three pixels outside there is nothing but zeros, and this is a number.
            return clip(x, -3, axis.length(2))
        clamped_at = clip(x, 0, axis.length(-1))
        if self.mode != "cubic":
            return clamped_at
        inside = clip(x, *self._borders(axis))
        return inside.op("Equal", x).where(x, clamped_at)

    def _reflected(self, x: Term, axis: Axis) -> Term:
        """Return positions thrown back from the borders, as often as it takes.

        d = |x - low|;   n = floor(d / (high - low));   low + rest, or high - rest for an odd n
        """
        low, high = self._borders(axis)
        # Between the centres of one pixel there is no way; any length will do.
        length = axis.length(-1 if self.is_aligned else 0) or 1
        if isinstance(length, Term) and self.is_aligned:
            length = length.op("Max", 1)
        distance = abs(x - low if low else x)
        times = (distance / length).op("Floor")
        rest = distance - times * length
        forth = rest + low if low else rest
        is_odd = times > (times / 2).op("Floor") * 2
        return clip(is_odd.where(high - rest, forth), low, high)


# AffineGrid-20, for opsets below 20.


def lower_affine_grid_20(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Multiply the places of a picture, or of a volume, with the transposed matrices.

    With an unknown number of sizes, the function body gives Range a vector, chooses
    with an If whose branches differ in shape, and divides by zero for a single row or column. Such
    a row is at -1, as a single layer is in the body.
    """
    op = em.op
    theta, size = view.operands("theta", "size")
    count, dtype = dims_of(size), theta.dtype
    if count not in ((4,), (5,)) or dtype is None:
        return None
    rank = 2 if count == (4,) else 3
    axes = [em.constant(axis, "axis") for axis in range(2, rank + 2)]
    counts = [op("Gather", size, axis) for axis in axes]
    sizes = [op("Reshape", value, [1]) for value in counts]
    shape = op("Concat", *sizes, [1], axis=0)
    columns = []
    for axis in reversed(range(rank)):  # width, height, depth
        line = _line(em, counts[axis], dtype, corners=view.integer("align_corners") != 0)
        line = unsqueeze(em, line, [d for d in range(rank + 1) if d != axis])
        columns.append(op("Expand", line, shape))
    unit = em.constant(np.ones(1, dtype.numpy()), "unit")
    columns.append(op("Expand", unit, shape))
    places = op("Concat", *columns, axis=rank)
    flat = op("Reshape", places, [-1, rank + 1])
    turned = op("Transpose", theta, perm=[0, 2, 1])
    moved = op("MatMul", flat, turned)  # (N, D * H * W, rank)
    batch = op("Gather", size, [0])
    whole = op("Concat", batch, *sizes, [rank], axis=0)
    return op("Reshape", moved, whole)


def _line(em: Emitter, count: ir.Value, dtype: ir.DataType, *, corners: bool) -> ir.Value:
    """Return `count` places from -1 to 1, the centres of equal parts, or with corners the ends."""
    places = Term(em, em.op("Range", 0, count, 1)).cast(dtype)
    parts = Term(em, count).cast(dtype)
    if corners:
        parts = Term(em, em.op("Equal", count, 1)).where(1, parts - 1)
    step = 2 / parts
    start = -1 if corners else -1 + step / 2
    return (start + places * step).value


# Inputs and outputs of element types that the target lacks, told once for each type.


_YOUNG = (*CARRIERS, ir.DataType.BFLOAT16)


def missing_at_border(model: ir.Model, source: int, target: int) -> list[Diagnostic]:
    """Return an error for each type of an input or output that no operator takes at `target`.

    Inputs and outputs keep their types, and whatever else is wrong follows from this or shows at
    the opset that has them. Values that only operators of other domains touch are not judged.
    """
    found: dict[ir.DataType, list[ir.Value]] = {}
    for value in dict.fromkeys((*model.graph.inputs, *model.graph.outputs)):
        dtype = value.dtype
        if dtype in _YOUNG and not takes("Cast", 0, dtype, target) and _touching(value):
            found.setdefault(dtype, []).append(value)
    return [_error(model, dtype, values, source, target) for dtype, values in found.items()]


def _touching(value: ir.Value) -> list[ir.Node]:
    """Return the nodes of the default domain that make or read a value."""
    producer = value.producer()
    nodes = [use.node for use in value.uses()] + ([] if producer is None else [producer])
    return [node for node in nodes if is_standard(node)]


def _error(
    model: ir.Model, dtype: ir.DataType, values: list[ir.Value], source: int, target: int
) -> Diagnostic:
    higher = range(target + 1, source + 1)
    lowest = next((opset for opset in higher if takes("Cast", 0, dtype, opset)), None)
    name, more = values[0].name, len(values) - 1
    if more:
        others = counted(more, "other input or output", "other inputs and outputs")
        text = f"`{name}` and {others} are {dtype.name}, which opset {target} does not support"
    else:
        text = f"`{name}` is {dtype.name}, which opset {target} does not support"
    return Diagnostic(
        "element-type",
        "error",
        _place(model.graph, values[0]),
        text,
        "inputs and outputs keep their types: choose a higher opset, or export the model with "
        "another type",
        lowest,
    )


def _place(graph: ir.Graph, value: ir.Value) -> Location:
    touching = _touching(value)
    for index, node in enumerate(graph):
        if any(node is other for other in touching):
            return Location.of(graph_path(graph.name), node, index, value.name)
    return Location(graph_path(graph.name), value=value.name)
