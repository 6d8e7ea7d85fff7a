"""RoiAlign and DeformConv, which sample where their inputs say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    computed_in,
    dtype_of,
    known_type,
    positions,
    size,
    unsqueeze,
)
from onnx_kvtool.emit.sampling import Axis, blended, clip, combined, linear_taps, pixel_rows
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import count_up
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes

# RoiAlign-16, for opsets below 16.


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
    kind = computed_in(dtype)
    wide = cast(em, data, kind)
    boxes = Term(em, cast(em, rois, kind)) * view.real("spatial_scale") - 0.5
    pool = Pool(em, view, wide, boxes, sides_of(boxes), _boxes_around)
    if not em.branches:
        result = pool.sampled()
    else:
        attributes["spatial_scale"] = 1.0
        # A box of sizes that are no numbers is small: what becomes of it, the samples decide.
        small = (pool.sides < 1) | ~pool.sides.op("Equal", pool.sides)
        marks = small.cast(ir.DataType.FLOAT)
        all_large = marks.reduce("ReduceSum", [0, 1], keepdims=False) < 0.5

        def pooled() -> list[ir.Value]:
            return [em.op("RoiAlign", wide, boxes, batch, attributes=attributes)]

        result = em.op(
            "If",
            all_large.value,
            then_branch=em.nested(pooled),
            else_branch=em.nested(lambda: [pool.sampled()]),
            dtype=kind,
        )
    return Replacement((cast(em, result, dtype),), via="shifted")


def sides_of(boxes: Term) -> Term:
    """Return the width and height of boxes: (R, 2)."""
    first, last = (boxes.op("Gather", columns, axis=1) for columns in ([0, 1], [2, 3]))
    return last - first


@dataclass(frozen=True, slots=True)
class _Line:
    """The samples of each box along one axis, seen in (R, oh, samples, ow, samples, 1).

    Attributes:
        place: Where they are: of size 1 along the other axis.
        samples: Samples of a bin: (1,), int64.
        counted: Number of samples of each box, (R, 1, 1, 1, 1, 1), floats; and whether a sample is
            one of them, of the shape of `place` but 1 along the bins. None where all of them are.
    """

    place: Term
    samples: ir.Value
    counted: tuple[Term, Term] | None


@dataclass(frozen=True, slots=True)
class Pool:
    """RoiAlign of boxes of any size.

    Attributes:
        data: (N, C, H, W), in the type of the computation.
        boxes: (R, 4): x1, y1, x2, y2 in pixels, shifted.
        sides: (R, 2): width and height of the boxes.
        read: Returns the pixels, in all channels, at points of pictures, from the pool, `y` and
            `x`, each (P, 1), and the picture of each point, (P,): (P, C) or (P, C, 1, 1).
    """

    em: Emitter
    view: NodeView
    data: ir.Value
    boxes: Term
    sides: Term
    read: Callable[[Pool, Term, Term, ir.Value], Term]

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
            return op("Concat", [first], *sizes, *last, axis=0)

        whole = shape(1, [1])
        y, x = (line.place.op("Expand", whole).op("Reshape", [-1, 1]) for line in (rows, columns))
        spread = op("Reshape", self.view.required("batch_indices"), [-1, 1, 1, 1, 1])
        pictures = op("Reshape", op("Expand", spread, shape(1)), [-1])
        found = self.read(self, y, x, pictures)  # of R * oh * samples * ow * samples points
        channels = size(em, self.data, 1, (dims_of(self.data) or (None,) * 4)[1])
        values = found.op("Reshape", shape(-1, op("Reshape", channels, [1])))
        pooled = self._pooled(values, rows, columns)  # (R, oh, ow, C)
        return op("Transpose", pooled, perm=[0, 3, 1, 2])

    def _line(self, column: int, bins: int, place: int) -> _Line:
        """Return the samples along one axis.

        `column` of the boxes is 0 for x, 1 for y. `place` is the axis of the bins; that of the
        samples comes next.
        """
        em, dtype = self.em, dtype_of(self.boxes.value)
        ratio = self.view.integer("sampling_ratio")

        def shaped(value: Term, *sizes: tuple[int, int]) -> Term:
            shape = [1] * 6
            for axis, count in sizes:
                shape[axis] = count
            return value.op("Reshape", shape)

        start, side = (
            shaped(of.op("Gather", [column], axis=1), (0, -1)) for of in (self.boxes, self.sides)
        )
        one_bin = side / bins
        count = None
        if ratio > 0:
            samples = em.constant([ratio])
            numbered = Term(em, em.constant(np.arange(ratio).astype(dtype.numpy()), "number"))
            divisor: Operand = ratio
        else:
            count = one_bin.op("Ceil")
            listed = count.op("Reshape", [-1]).op("Concat", [1], axis=0)
            most = listed.reduce("ReduceMax", [0], keepdims=False)
            whole = most.cast(ir.DataType.INT64)
            samples = em.op("Reshape", whole, [1])
            if em.opset < 11:
                steps = count_up(em, samples)
            else:
                steps = Term(em, em.op("Range", 0, whole, 1))
            numbered = steps.cast(dtype)
            divisor = count.op("Max", 1)
        numbered = shaped(numbered, (place + 1, -1))
        bin_places = Term(em, em.constant(np.arange(bins).astype(dtype.numpy()), "number"))
        before = shaped(bin_places, (place, bins)) * one_bin
        at = start + before + (numbered + 0.5) * one_bin / divisor
        return _Line(at, samples, None if count is None else (count, numbered < count))

    def _pooled(self, values: Term, rows: _Line, columns: _Line) -> ir.Value:
        """Return the mean or the largest of the samples of each bin; 0 where there are none."""
        axes, is_mean = [2, 4], self.mode == "avg"
        if rows.counted is None or columns.counted is None:
            op_type = "ReduceMean" if is_mean else "ReduceMax"
            return values.reduce(op_type, axes, keepdims=False).value
        (high, is_high), (wide, is_wide) = rows.counted, columns.counted
        kept = (is_high & is_wide).where(values, 0 if is_mean else -np.inf)
        total = high.op("Max", 0) * wide.op("Max", 0)
        total = total.op("Reshape", [-1, 1, 1, 1])
        op_type = "ReduceSum" if is_mean else "ReduceMax"
        found = kept.reduce(op_type, axes, keepdims=False)
        if is_mean:
            return (found / total.op("Max", 1)).value
        return (total > 0).where(found, 0).value


def _boxes_around(pool: Pool, y: Term, x: Term, pictures: ir.Value) -> Term:
    """Return the pixels at points: of a box of one pixel around each."""
    em = pool.em
    points = x.op("Concat", y, x, y, axis=1)
    boxes = points.op("Add", [-0.5, -0.5, 0.5, 0.5])
    found = em.op("RoiAlign", pool.data, boxes, pictures, mode=pool.mode, sampling_ratio=1)
    return Term(em, found)


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
    wide = computed_in(dtype)
    group, parts = view.integer("group"), view.integer("offset_group")
    kernel, channels = sizes[2:], dims[1]
    elements = math.prod(kernel)
    places = _places(view, em, cast(em, offset, wide), kernel, parts)
    axes, rows, shares = [], [], []
    for number, place in enumerate(places):
        axis = Axis(em, wide, dims[2 + number], data, 2 + number, 1)
        # A number, and outside as well.
        taps, share = linear_taps(clip(place, -3, axis.length(2)))
        axes.append(axis)
        rows.append(axis.index(taps))
        shares.append(share)
    start = None if dims[0] == 1 else positions(em, data, 0, place=0, rank=5)
    index, weight = combined(start, axes, rows, shares, 2, 5)  # (N, parts, K, P, taps)
    pixels = pixel_rows(em, cast(em, data, wide), len(dims), 1)
    if parts > 1:
        pixels = op("Reshape", pixels, [-1, channels // parts])
        index = index * parts + np.arange(parts).reshape(1, -1, 1, 1, 1)
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
    spatial = op("Gather", op("Shape", offset), np.arange(2, len(dims)))
    result = op("Reshape", product, op("Concat", [0, sizes[0]], spatial, axis=0))
    bias = view.input("B")
    if bias is not None:
        column = op("Reshape", cast(em, bias, wide), [1, -1] + [1] * len(kernel))
        result = op("Add", result, column)
    return cast(em, result, dtype)


def _places(
    view: NodeView, em: Emitter, offset: ir.Value, kernel: list[int], parts: int
) -> list[Term]:
    """Return for each axis where each element of each window looks: (N, parts, K, P, 1)."""
    op = em.op
    rank, elements, dtype = len(kernel), math.prod(kernel), dtype_of(offset)
    strides = view.integers("strides") or [1] * rank
    dilations = view.integers("dilations") or [1] * rank
    pads = view.integers("pads") or [0] * rank
    offsets = op("Reshape", offset, [0, parts, elements, rank, -1])
    given = view.required("offset")
    dims = dims_of(given) or (None,) * (rank + 2)
    whole = op("Gather", op("Shape", given), np.arange(2, rank + 2))
    corners = np.indices(kernel).reshape(rank, elements, 1)
    found = []
    for axis in range(rank):
        start = corners[axis] * dilations[axis] - pads[axis]  # (K, 1)
        moved = Term(em, op("Gather", offsets, axis, axis=3))
        counted = positions(em, given, 2 + axis, place=axis, rank=rank, dim=dims[2 + axis])
        along = (Term(em, counted) * strides[axis]).op("Expand", whole).op("Reshape", [-1])  # (P,)
        base = (along + start).cast(dtype)
        found.append((moved + base).then(unsqueeze, [4]))
    return found
