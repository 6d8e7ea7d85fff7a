"""RoiAlign and DeformConv, which sample where their inputs say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    cast,
    dtype_of,
    known_type,
    positions,
    reduce,
    size,
    unsqueeze,
    where,
)
from onnx_kvtool.emit.sampling import Axis, blended, clip, combined, linear_taps, pixel_rows
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import count_up
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes

# RoiAlign-16, for opsets below 16.


_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def lower_roi_align_16(view: Rewritten, em: Emitter) -> ir.Value | Replacement:
    """Drop the mode that names what RoiAlign-10 does; shift boxes by half a pixel for `half_pixel`.

    Version 10 also widens boxes smaller than one pixel, which `half_pixel` does not. Where there
    are such boxes, each sample becomes a box of one pixel around itself, and is pooled afterwards:

        y = start + bin * (size / bins) + (sample + 0.5) * (size / bins) / samples

    An If looks at the boxes; below opset 11, where its branches have to give equal shapes, every
    sample becomes a box.
    """
    data, rois, batch = view.operands("X", "rois", "batch_indices")
    dtype = dtype_of(data)
    kept = ("mode", "output_height", "output_width", "sampling_ratio", "spatial_scale")
    attributes: dict[str, AttributeValue] = {}
    for name in kept:
        value = view.attribute(name)
        if isinstance(value, (int, float, str)):
            attributes[name] = value
    if view.string("coordinate_transformation_mode") == "output_half_pixel":
        return em.op("RoiAlign", data, rois, batch, attributes=attributes)
    kind = dtype if dtype in _WIDE else ir.DataType.FLOAT
    wide = cast(em, data, kind)
    scaled = em.op("Mul", cast(em, rois, kind), view.real("spatial_scale"))
    boxes = em.op("Sub", scaled, 0.5)  # (R, 4): x1, y1, x2, y2
    pool = Pool(em, view, wide, boxes, sides_of(em, boxes), _boxes_around)
    if not em.branches:
        result = pool.sampled()
    else:
        attributes["spatial_scale"] = 1.0

        def pooled() -> list[ir.Value]:
            return [em.op("RoiAlign", wide, boxes, batch, attributes=attributes)]

        result = em.op(
            "If",
            _all_large(em, boxes),
            then_branch=em.nested(pooled, hint="large"),
            else_branch=em.nested(lambda: [pool.sampled()], hint="small"),
            dtype=kind,
        )
    return Replacement((cast(em, result, dtype),), via="shifted")


def _all_large(em: Emitter, boxes: ir.Value) -> ir.Value:
    """Return whether no box is smaller than one pixel, either way: ()."""
    sides = sides_of(em, boxes)
    small = em.op("Less", sides, 1)
    # A box of sizes that are no numbers is small: what becomes of it, the samples decide.
    none = em.op("Not", em.op("Equal", sides, sides))
    marks = cast(em, em.op("Or", small, none), ir.DataType.FLOAT)
    count = reduce(em, "ReduceSum", marks, [0, 1], keepdims=False)
    return em.op("Less", count, 0.5)


def sides_of(em: Emitter, boxes: ir.Value) -> ir.Value:
    """Return the width and height of boxes: (R, 2)."""
    first, last = (em.op("Gather", boxes, columns, axis=1) for columns in ([0, 1], [2, 3]))
    return em.op("Sub", last, first)


@dataclass(frozen=True, slots=True)
class _Line:
    """The samples of each box along one axis, seen in (R, oh, samples, ow, samples, 1).

    Attributes:
        place: Where they are: of size 1 along the other axis.
        samples: Samples of a bin: (1,), int64.
        count: Number of samples of each box: (R, 1, 1, 1, 1, 1), floats; None for all of them.
        counts: Whether a sample counts, of the shape of `place` but 1 along the bins; None for yes.
    """

    place: ir.Value
    samples: ir.Value
    count: ir.Value | None
    counts: ir.Value | None


@dataclass(frozen=True, slots=True)
class Pool:
    """RoiAlign of boxes of any size.

    Attributes:
        em: Where to build.
        view: The RoiAlign.
        data: (N, C, H, W), in the type of the computation.
        boxes: (R, 4): x1, y1, x2, y2 in pixels, shifted.
        sides: (R, 2): width and height of the boxes.
        read: Returns the pixels, in all channels, at points of pictures, from the pool, `y` and
            `x`, each (P, 1), and the picture of each point, (P,): (P, C) or (P, C, 1, 1).
    """

    em: Emitter
    view: NodeView
    data: ir.Value
    boxes: ir.Value
    sides: ir.Value
    read: Callable[[Pool, ir.Value, ir.Value, ir.Value], ir.Value]

    @property
    def mode(self) -> str:
        """How samples are pooled, `avg` or `max`."""
        return self.view.string("mode")

    def sampled(self) -> ir.Value:
        """Return the result: (R, C, oh, ow)."""
        em = self.em
        op = em.op
        high, wide = (self.view.integer(f"output_{side}") for side in ("height", "width"))
        rows, columns = self._line(1, high, 1), self._line(0, wide, 3)
        sizes: list[Operand] = [[high], rows.samples, [wide], columns.samples]

        def shape(first: int, *last: Operand) -> ir.Value:
            return op("Concat", [first], *sizes, *last, axis=0, hint="shape")

        whole = shape(1, [1])
        y, x = (op("Reshape", op("Expand", line.place, whole), [-1, 1]) for line in (rows, columns))
        spread = op("Reshape", self.view.required("batch_indices"), [-1, 1, 1, 1, 1])
        pictures = op("Reshape", op("Expand", spread, shape(1)), [-1])
        found = self.read(self, y, x, pictures)  # of R * oh * samples * ow * samples points
        channels = size(em, (dims_of(self.data) or (None,) * 4)[1], self.data, 1)
        count = op("Reshape", channels, [1], hint="channels")
        values = op("Reshape", found, shape(-1, count))
        pooled = self._pooled(values, rows, columns)  # (R, oh, ow, C)
        return op("Transpose", pooled, perm=[0, 3, 1, 2])

    def _line(self, column: int, bins: int, place: int) -> _Line:
        """Return the samples along one axis.

        Args:
            column: Of the boxes: 0 for x, 1 for y.
            bins: Bins along the axis.
            place: Axis of the bins; that of the samples comes next.
        """
        em, dtype, ratio = self.em, dtype_of(self.boxes), self.view.integer("sampling_ratio")
        op = em.op

        def shaped(value: ir.Value, *sizes: tuple[int, int]) -> ir.Value:
            shape = [1] * 6
            for axis, count in sizes:
                shape[axis] = count
            return op("Reshape", value, shape)

        start, side = (
            shaped(op("Gather", of, [column], axis=1), (0, -1)) for of in (self.boxes, self.sides)
        )
        one_bin = op("Div", side, bins)
        count = counts = None
        if ratio > 0:
            samples = em.constant([ratio])
            numbered = em.constant(np.arange(ratio).astype(dtype.numpy()), "number")
            divisor: Operand = ratio
        else:
            count = op("Ceil", one_bin)
            flat = op("Reshape", count, [-1])
            listed = op("Concat", flat, [1], axis=0)
            most = reduce(em, "ReduceMax", listed, [0], keepdims=False)
            whole = cast(em, most, ir.DataType.INT64)
            samples = op("Reshape", whole, [1], hint="samples")
            if em.opset < 11:
                steps = count_up(em, samples)
            else:
                steps = op("Range", 0, whole, 1, hint="numbered")
            numbered = cast(em, steps, dtype)
            divisor = op("Max", count, 1)
        numbered = shaped(numbered, (place + 1, -1))
        bin_places = em.constant(np.arange(bins).astype(dtype.numpy()), "number")
        before = op("Mul", shaped(bin_places, (place, bins)), one_bin)
        inside = op("Mul", op("Add", numbered, 0.5), one_bin)
        inside = op("Div", inside, divisor)
        at = op("Add", op("Add", start, before), inside)
        if count is not None:
            counts = op("Less", numbered, count)
        return _Line(at, samples, count, counts)

    def _pooled(self, values: ir.Value, rows: _Line, columns: _Line) -> ir.Value:
        """Return the mean or the largest of the samples of each bin; 0 where there are none."""
        em, axes = self.em, [2, 4]
        op = em.op
        if rows.counts is None or columns.counts is None:
            op_type = "ReduceMean" if self.mode == "avg" else "ReduceMax"
            return reduce(em, op_type, values, axes, keepdims=False)
        counts = op("And", rows.counts, columns.counts)
        kept = where(em, counts, values, 0 if self.mode == "avg" else -np.inf)
        assert rows.count is not None
        assert columns.count is not None
        clamped_at = [op("Max", line, 0) for line in (rows.count, columns.count)]
        total = op("Mul", *clamped_at)
        total = op("Reshape", total, [-1, 1, 1, 1])
        if self.mode == "avg":
            added = reduce(em, "ReduceSum", kept, axes, keepdims=False)
            return op("Div", added, op("Max", total, 1))
        largest = reduce(em, "ReduceMax", kept, axes, keepdims=False)
        is_sampled = op("Greater", total, 0)
        return where(em, is_sampled, largest, 0)


def _boxes_around(pool: Pool, y: ir.Value, x: ir.Value, pictures: ir.Value) -> ir.Value:
    """Return the pixels at points: of a box of one pixel around each."""
    em = pool.em
    points = em.op("Concat", x, y, x, y, axis=1, hint="points")
    boxes = em.op("Add", points, [-0.5, -0.5, 0.5, 0.5])
    return em.op("RoiAlign", pool.data, boxes, pictures, mode=pool.mode, sampling_ratio=1)


# DeformConv-22 and DeformConv-19, for opsets below 19.


def lower_deform_conv_19(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather what each element of the filters looks at, and multiply with the filters.

    x = place * stride - pad + element * dilation + offset
    samples (N, C, K, P), linear between the pixels, zero outside, times the mask
    y = W (group, oC / group, C / group * K) x samples (N, group, C / group * K, P) + B

    Refuses an unknown number of channels, and an unknown shape of the filters.
    """
    op = em.op
    data, filters, offset = view.operands("X", "W", "offset")
    dims, sizes, dtype = dims_of(data), fixed_sizes(dims_of(filters)), known_type(data)
    if dims is None or sizes is None or not isinstance(dims[1], int):
        raise Refusal(
            "unknown-dimension",
            f"DeformConv before opset 19 depends on the shape of `{filters.name}` and the number "
            f"of channels of `{data.name}`, and not all of it is known",
            help="declare the shapes of the inputs",
        )
    wide = dtype if dtype in _WIDE else ir.DataType.FLOAT
    group, parts = view.integer("group"), view.integer("offset_group")
    kernel, channels = sizes[2:], dims[1]
    elements = math.prod(kernel)
    places = _places(view, em, cast(em, offset, wide), kernel, parts)
    axes, rows, shares = [], [], []
    for number, place in enumerate(places):
        axis = Axis(em, wide, dims[2 + number], data, 2 + number, 1)
        # A number, and outside as well.
        taps, share = linear_taps(em, clip(em, place, -3, axis.length(2)))
        axes.append(axis)
        rows.append(axis.index(taps))
        shares.append(share)
    start = None if dims[0] == 1 else positions(em, dims[0], data, 0, place=0, rank=5)
    index, weight = combined(em, start, axes, rows, shares, 2, 5)  # (N, parts, K, P, taps)
    pixels = pixel_rows(em, cast(em, data, wide), len(dims), 1)
    if parts > 1:
        pixels = op("Reshape", pixels, [-1, channels // parts])
        index = op("Add", op("Mul", index, parts), np.arange(parts).reshape(1, -1, 1, 1, 1))
    samples = blended(em, pixels, index, weight, 5)  # (N, parts, K, P, C / parts)
    mask = view.input("mask")
    if mask is not None:
        factor = op("Reshape", cast(em, mask, wide), [0, parts, elements, -1, 1])
        samples = op("Mul", samples, factor)
    turned = op("Transpose", samples, perm=[0, 1, 4, 2, 3])
    windows = op("Reshape", turned, [0, group, channels // group * elements, -1])
    form = em.constant([group, sizes[0] // group, sizes[1] * elements], "shape")
    product = op(
        "MatMul", op("Reshape", cast(em, filters, wide), form), windows
    )  # (N, group, oC / group, P)
    result = op("Reshape", product, _shape(em, offset, sizes[0], len(dims)))
    bias = view.input("B")
    if bias is not None:
        column = op("Reshape", cast(em, bias, wide), [1, -1] + [1] * len(kernel))
        result = op("Add", result, column)
    return cast(em, result, dtype)


def _shape(em: Emitter, offset: ir.Value, channels: int, rank: int) -> ir.Value:
    """Return the shape of the result: (N, oC, o1, ..., on), where N is copied."""
    sizes = fixed_sizes((dims_of(offset) or (None,) * rank)[2:])
    if sizes is not None:
        return em.constant([0, channels, *sizes], "shape")
    rest = em.op("Gather", em.op("Shape", offset), np.arange(2, rank), hint="sizes")
    return em.op("Concat", [0, channels], rest, axis=0, hint="shape")


def _places(
    view: NodeView, em: Emitter, offset: ir.Value, kernel: list[int], parts: int
) -> list[ir.Value]:
    """Return for each axis where each element of each window looks: (N, parts, K, P, 1)."""
    op = em.op
    rank, elements = len(kernel), math.prod(kernel)
    strides = view.integers("strides") or [1] * rank
    dilations = view.integers("dilations") or [1] * rank
    pads = view.integers("pads") or [0] * rank
    offsets = op("Reshape", offset, [0, parts, elements, rank, -1])
    given = view.required("offset")
    dims = dims_of(given) or (None,) * (rank + 2)
    sizes = fixed_sizes(dims[2:])
    corners = np.indices(kernel).reshape(rank, elements, 1)
    found = []
    for axis in range(rank):
        start = corners[axis] * dilations[axis] - pads[axis]  # (K, 1)
        moved = op("Gather", offsets, axis, axis=3)
        if sizes is not None:
            along = np.indices(sizes).reshape(rank, -1)[axis] * strides[axis]  # (P,)
            base = em.constant((start + along).astype(dtype_of(offset).numpy()), "number")
        else:
            counted = positions(em, dims[2 + axis], given, 2 + axis, place=axis, rank=rank)
            whole = op("Gather", op("Shape", given), np.arange(2, rank + 2), hint="sizes")
            spread = op("Expand", op("Mul", counted, strides[axis]), whole)
            flat = cast(em, op("Reshape", spread, [-1]), dtype_of(offset))
            base = op("Add", flat, start.astype(dtype_of(offset).numpy()))
        found.append(unsqueeze(em, op("Add", moved, base), [4]))
    return found
