"""RoiAlign and DeformConv, which sample where their inputs say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
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
from onnx_kvtool.emit.sampling import Axis, Numbers, blended, combined, linear_taps, pixel_rows
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
    mode = view.string("coordinate_transformation_mode")
    data, rois, batch = view.operands("X", "rois", "batch_indices")
    dtype = dtype_of(data)
    kept = ("mode", "output_height", "output_width", "sampling_ratio", "spatial_scale")
    attributes: dict[str, AttributeValue] = {}
    for name in kept:
        value = view.attribute(name)
        if isinstance(value, (int, float, str)):
            attributes[name] = value
    if mode == "output_half_pixel":
        return em.op("RoiAlign", data, rois, batch, attributes=attributes)
    numbers = Numbers(em, dtype if dtype in _WIDE else ir.DataType.FLOAT)
    wide = cast(em, data, numbers.dtype)
    scale = view.attribute("spatial_scale")
    assert isinstance(scale, (int, float))
    scaled = numbers.op("Mul", cast(em, rois, numbers.dtype), float(scale))
    boxes = numbers.op("Sub", scaled, 0.5)  # (R, 4): x1, y1, x2, y2
    pool = Pool(
        numbers,
        wide,
        boxes,
        sides_of(numbers, boxes),
        batch,
        (view.integer("output_height"), view.integer("output_width")),
        view.integer("sampling_ratio"),
        view.string("mode"),
        _boxes_around,
    )
    if not em.branches:
        result = pool.sampled()
    else:
        attributes["spatial_scale"] = 1.0
        is_large = _all_large(numbers, boxes)
        result = em.op(
            "If",
            is_large,
            then_branch=em.nested(
                lambda: [
                    em.op(
                        "RoiAlign",
                        wide,
                        boxes,
                        batch,
                        attributes=attributes,
                    )
                ],
                hint="large",
            ),
            else_branch=em.nested(lambda: [pool.sampled()], hint="small"),
            dtype=numbers.dtype,
        )
    return Replacement((cast(em, result, dtype),), via="shifted")


def _all_large(numbers: Numbers, boxes: ir.Value) -> ir.Value:
    """Return whether no box is smaller than one pixel, either way: ()."""
    em = numbers.em
    sides = sides_of(numbers, boxes)
    small = em.op("Less", sides, 1)
    # A box of sizes that are no numbers is small: what becomes of it, the samples decide.
    none = em.op("Not", em.op("Equal", sides, sides))
    marks = cast(em, em.op("Or", small, none), ir.DataType.FLOAT)
    count = reduce(em, "ReduceSum", marks, [0, 1], keepdims=False)
    return em.op("Less", count, 0.5)


def sides_of(numbers: Numbers, boxes: ir.Value) -> ir.Value:
    """Return the width and height of boxes: (R, 2)."""
    first, last = (_columns(numbers, boxes, columns) for columns in ([0, 1], [2, 3]))
    return numbers.op("Sub", last, first)


def _columns(numbers: Numbers, boxes: ir.Value, columns: list[int]) -> ir.Value:
    return numbers.em.op("Gather", boxes, columns, axis=1)


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
        numbers: The type.
        data: (N, C, H, W).
        boxes: (R, 4): x1, y1, x2, y2 in pixels, shifted.
        sides: (R, 2): width and height of the boxes.
        batch: (R,), int64.
        bins: Rows and columns of the result.
        ratio: Samples of a bin along each axis; 0 for as many as a bin has pixels.
        mode: `avg` or `max`.
        read: Returns the pixels, in all channels, at points of pictures, from the pool, `y` and
            `x`, each (P, 1), and the picture of each point, (P,): (P, C) or (P, C, 1, 1).
    """

    numbers: Numbers
    data: ir.Value
    boxes: ir.Value
    sides: ir.Value
    batch: ir.Value
    bins: tuple[int, int]
    ratio: int
    mode: str
    read: Callable[[Pool, ir.Value, ir.Value, ir.Value], ir.Value]

    def sampled(self) -> ir.Value:
        """Return the result: (R, C, oh, ow)."""
        em = self.numbers.em
        rows, columns = self._line(1, self.bins[0], 1), self._line(0, self.bins[1], 3)
        sizes = [
            em.constant([self.bins[0]]),
            rows.samples,
            em.constant([self.bins[1]]),
            columns.samples,
        ]

        def shape(*around: ir.Value) -> ir.Value:
            given = [around[0], *sizes, *around[1:]]
            return em.op("Concat", *given, axis=0, hint="shape")

        one = em.constant([1])
        whole = shape(one, one)
        y, x = (
            em.op("Reshape", em.op("Expand", line.place, whole), [-1, 1])
            for line in (rows, columns)
        )
        spread = em.op("Reshape", self.batch, [-1, 1, 1, 1, 1])
        pictures = em.op("Reshape", em.op("Expand", spread, shape(one)), [-1])
        found = self.read(self, y, x, pictures)  # of R * oh * samples * ow * samples points
        channels = size(em, (dims_of(self.data) or (None,) * 4)[1], self.data, 1)
        count = em.op("Reshape", channels, one, hint="channels")
        values = em.op("Reshape", found, shape(em.constant([-1]), count))
        pooled = self._pooled(values, rows, columns)  # (R, oh, ow, C)
        return em.op("Transpose", pooled, perm=[0, 3, 1, 2])

    def _line(self, column: int, bins: int, place: int) -> _Line:
        """Return the samples along one axis.

        Args:
            column: Of the boxes: 0 for x, 1 for y.
            bins: Bins along the axis.
            place: Axis of the bins; that of the samples comes next.
        """
        em, numbers, dtype = self.numbers.em, self.numbers, self.numbers.dtype

        def shaped(value: ir.Value, *sizes: tuple[int, int]) -> ir.Value:
            shape = [1] * 6
            for axis, count in sizes:
                shape[axis] = count
            return em.op("Reshape", value, shape)

        start = shaped(_columns(numbers, self.boxes, [column]), (0, -1))
        side = shaped(_columns(numbers, self.sides, [column]), (0, -1))
        one_bin = numbers.op("Div", side, bins)
        count = counts = None
        if self.ratio > 0:
            samples = em.constant([self.ratio])
            numbered = numbers.constant(np.arange(self.ratio, dtype=np.float64))
            divisor = numbers.constant(self.ratio)
        else:
            count = numbers.op("Ceil", one_bin)
            flat = em.op("Reshape", count, [-1])
            listed = em.op("Concat", flat, numbers.constant([1]), axis=0)
            most = reduce(em, "ReduceMax", listed, [0], keepdims=False)
            whole = cast(em, most, ir.DataType.INT64)
            samples = em.op("Reshape", whole, [1], hint="samples")
            if em.opset < 11:
                steps = count_up(em, samples)
            else:
                steps = em.op("Range", 0, whole, 1, hint="numbered")
            numbered = cast(em, steps, dtype)
            divisor = numbers.op("Max", count, 1)
        numbered = shaped(numbered, (place + 1, -1))
        bin_places = numbers.constant(np.arange(bins, dtype=np.float64))
        before = numbers.op("Mul", shaped(bin_places, (place, bins)), one_bin)
        inside = numbers.op("Mul", numbers.op("Add", numbered, 0.5), one_bin)
        inside = numbers.op("Div", inside, divisor)
        at = numbers.op("Add", numbers.op("Add", start, before), inside)
        if count is not None:
            counts = em.op("Less", numbered, count)
        return _Line(at, samples, count, counts)

    def _pooled(self, values: ir.Value, rows: _Line, columns: _Line) -> ir.Value:
        """Return the mean or the largest of the samples of each bin; 0 where there are none."""
        em, numbers, axes = self.numbers.em, self.numbers, [2, 4]
        if rows.counts is None or columns.counts is None:
            op_type = "ReduceMean" if self.mode == "avg" else "ReduceMax"
            return reduce(em, op_type, values, axes, keepdims=False)
        counts = em.op("And", rows.counts, columns.counts)
        filling = numbers.constant(0 if self.mode == "avg" else -np.inf)
        kept = where(em, counts, values, filling)
        assert rows.count is not None
        assert columns.count is not None
        clamped_at = [numbers.op("Max", line, 0) for line in (rows.count, columns.count)]
        total = numbers.op("Mul", *clamped_at)
        total = em.op("Reshape", total, [-1, 1, 1, 1])
        if self.mode == "avg":
            added = reduce(em, "ReduceSum", kept, axes, keepdims=False)
            return numbers.op("Div", added, numbers.op("Max", total, 1))
        largest = reduce(em, "ReduceMax", kept, axes, keepdims=False)
        is_sampled = numbers.is_greater(total, numbers.constant(0))
        return where(em, is_sampled, largest, numbers.constant(0))


def _boxes_around(pool: Pool, y: ir.Value, x: ir.Value, pictures: ir.Value) -> ir.Value:
    """Return the pixels at points: of a box of one pixel around each."""
    em, numbers = pool.numbers.em, pool.numbers
    points = em.op("Concat", x, y, x, y, axis=1, hint="points")
    boxes = numbers.op("Add", points, numbers.constant([-0.5, -0.5, 0.5, 0.5]))
    return em.op("RoiAlign", pool.data, boxes, pictures, mode=pool.mode, sampling_ratio=1)


# DeformConv-22 and DeformConv-19, for opsets below 19.


def lower_deform_conv_19(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather what each element of the filters looks at, and multiply with the filters.

    x = place * stride - pad + element * dilation + offset
    samples (N, C, K, P), linear between the pixels, zero outside, times the mask
    y = W (group, oC / group, C / group * K) x samples (N, group, C / group * K, P) + B

    Refuses an unknown number of channels, and an unknown shape of the filters.
    """
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
    numbers, group, parts = Numbers(em, wide), view.integer("group"), view.integer("offset_group")
    kernel, channels = sizes[2:], dims[1]
    elements = math.prod(kernel)
    places = _places(view, numbers, cast(em, offset, wide), kernel, parts)
    axes, rows, shares = [], [], []
    for number, place in enumerate(places):
        axis = Axis(dims[2 + number], data, 2 + number, 1)
        clamped_at = numbers.clip(
            place, -3, axis.length(numbers, 2)
        )  # a number, and outside as well
        taps, share = linear_taps(numbers, clamped_at)
        axes.append(axis)
        rows.append(axis.index(numbers, taps))
        shares.append(share)
    start = None if dims[0] == 1 else positions(em, dims[0], data, 0, place=0, rank=5)
    index, weight = combined(em, start, axes, rows, shares, 2, 5)  # (N, parts, K, P, taps)
    pixels = pixel_rows(em, cast(em, data, wide), len(dims), 1)
    if parts > 1:
        pixels = em.op("Reshape", pixels, [-1, channels // parts])
        index = em.op("Add", em.op("Mul", index, parts), np.arange(parts).reshape(1, -1, 1, 1, 1))
    samples = blended(em, pixels, index, weight, 5)  # (N, parts, K, P, C / parts)
    mask = view.input("mask")
    if mask is not None:
        form = em.constant([0, parts, elements, -1, 1], "shape")
        factor = em.op("Reshape", cast(em, mask, wide), form)
        samples = numbers.op("Mul", samples, factor)
    turned = em.op("Transpose", samples, perm=[0, 1, 4, 2, 3])
    windows = em.op("Reshape", turned, [0, group, channels // group * elements, -1])
    form = em.constant([group, sizes[0] // group, sizes[1] * elements], "shape")
    product = numbers.op(
        "MatMul", em.op("Reshape", cast(em, filters, wide), form), windows
    )  # (N, group, oC / group, P)
    result = em.op("Reshape", product, _shape(em, offset, sizes[0], len(dims)))
    bias = view.input("B")
    if bias is not None:
        form = em.constant([1, -1] + [1] * len(kernel), "shape")
        result = numbers.op("Add", result, em.op("Reshape", cast(em, bias, wide), form))
    return cast(em, result, dtype)


def _shape(em: Emitter, offset: ir.Value, channels: int, rank: int) -> ir.Value:
    """Return the shape of the result: (N, oC, o1, ..., on), where N is copied."""
    sizes = fixed_sizes((dims_of(offset) or (None,) * rank)[2:])
    if sizes is not None:
        return em.constant([0, channels, *sizes], "shape")
    rest = em.op("Gather", em.op("Shape", offset), np.arange(2, rank), hint="sizes")
    return em.op("Concat", [0, channels], rest, axis=0, hint="shape")


def _places(
    view: NodeView, numbers: Numbers, offset: ir.Value, kernel: list[int], parts: int
) -> list[ir.Value]:
    """Return for each axis where each element of each window looks: (N, parts, K, P, 1)."""
    em, rank, elements = numbers.em, len(kernel), math.prod(kernel)
    strides = view.integers("strides") or [1] * rank
    dilations = view.integers("dilations") or [1] * rank
    pads = view.integers("pads") or [0] * rank
    offsets = em.op("Reshape", offset, [0, parts, elements, rank, -1])
    given = view.required("offset")
    dims = dims_of(given) or (None,) * (rank + 2)
    sizes = fixed_sizes(dims[2:])
    corners = np.indices(kernel).reshape(rank, elements, 1)
    found = []
    for axis in range(rank):
        start = corners[axis] * dilations[axis] - pads[axis]  # (K, 1)
        number, third = em.constant(axis, "axis"), {"axis": 3}
        moved = em.op("Gather", offsets, number, attributes=third)
        if sizes is not None:
            along = np.indices(sizes).reshape(rank, -1)[axis] * strides[axis]  # (P,)
            base = numbers.constant((start + along).astype(np.float64))
        else:
            counted = positions(em, dims[2 + axis], given, 2 + axis, place=axis, rank=rank)
            whole = em.op("Gather", em.op("Shape", given), np.arange(2, rank + 2), hint="sizes")
            spread = em.op("Expand", em.op("Mul", counted, strides[axis]), whole)
            flat = cast(em, em.op("Reshape", spread, [-1]), numbers.dtype)
            base = numbers.op("Add", flat, numbers.constant(start.astype(np.float64)))
        found.append(unsqueeze(em, numbers.op("Add", moved, base), [4]))
    return found
