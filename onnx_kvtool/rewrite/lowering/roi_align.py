"""RoiAlign-16, for opsets below 16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast, reduce, where
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.emit.sampling import Numbers
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import count_up
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["Pool", "lower_roi_align_16", "sides_of"]

_BOOL = ir.DataType.BOOL
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def lower_roi_align_16(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Drop the mode that names what RoiAlign-10 does; shift boxes by half a pixel for `half_pixel`.

    Version 10 also widens boxes smaller than one pixel, which `half_pixel` does not. Where there
    are such boxes, each sample becomes a box of one pixel around itself, and is pooled afterwards:

        y = start + bin * (size / bins) + (sample + 0.5) * (size / bins) / samples

    An If looks at the boxes; below opset 11, where its branches have to give equal shapes, every
    sample becomes a box.
    """
    view = NodeView(node, context.opset_of(node))
    mode = view.string("coordinate_transformation_mode")
    data, rois, batch = (view.required(name) for name in ("X", "rois", "batch_indices"))
    dtype = data.dtype or ir.DataType.UNDEFINED
    kept = ("mode", "output_height", "output_width", "sampling_ratio", "spatial_scale")
    attributes: dict[str, AttributeValue] = {}
    for name in kept:
        value = view.attribute(name)
        if isinstance(value, (int, float, str)):
            attributes[name] = value
    if mode == "output_half_pixel":
        made = em.op("RoiAlign", data, rois, batch, attributes=attributes, dtype=dtype)
        return Replacement((made,))
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
            attributes={
                "then_branch": em.nested(
                    lambda: [
                        em.op(
                            "RoiAlign",
                            wide,
                            boxes,
                            batch,
                            attributes=attributes,
                            dtype=numbers.dtype,
                        )
                    ],
                    hint="large",
                ),
                "else_branch": em.nested(lambda: [pool.sampled()], hint="small"),
            },
            dtype=numbers.dtype,
        )
    return Replacement((cast(em, result, dtype),), via="shifted")


def _all_large(numbers: Numbers, boxes: ir.Value) -> ir.Value:
    """Return whether no box is smaller than one pixel, either way: ()."""
    em = numbers.em
    sides = sides_of(numbers, boxes)
    small = em.op("Less", sides, numbers.constant(1), dtype=_BOOL)
    # A box of sizes that are no numbers is small: what becomes of it, the samples decide.
    none = em.op("Not", em.op("Equal", sides, sides, dtype=_BOOL), dtype=_BOOL)
    marks = cast(em, em.op("Or", small, none, dtype=_BOOL), ir.DataType.FLOAT)
    count = reduce(em, "ReduceSum", marks, [0, 1], keepdims=False)
    half = em.constant(np.array(0.5, np.float32), "half")
    return em.op("Less", count, half, dtype=_BOOL)


def sides_of(numbers: Numbers, boxes: ir.Value) -> ir.Value:
    """Return the width and height of boxes: (R, 2)."""
    first, last = (_columns(numbers, boxes, columns) for columns in ([0, 1], [2, 3]))
    return numbers.op("Sub", last, first)


def _columns(numbers: Numbers, boxes: ir.Value, columns: list[int]) -> ir.Value:
    em = numbers.em
    return em.op(
        "Gather",
        boxes,
        em.constant(columns, "columns"),
        attributes={"axis": 1},
        dtype=numbers.dtype,
    )


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
        em, dtype = self.numbers.em, self.numbers.dtype
        rows, columns = self._line(1, self.bins[0], 1), self._line(0, self.bins[1], 3)
        sizes = [
            em.constant([self.bins[0]]),
            rows.samples,
            em.constant([self.bins[1]]),
            columns.samples,
        ]

        def shape(*around: ir.Value) -> ir.Value:
            given = [around[0], *sizes, *around[1:]]
            return em.op("Concat", *given, attributes={"axis": 0}, hint="shape")

        one = em.constant([1])
        whole = shape(one, one)
        rows_of = em.constant([-1, 1], "shape")
        y, x = (
            em.op("Reshape", em.op("Expand", line.place, whole, dtype=dtype), rows_of, dtype=dtype)
            for line in (rows, columns)
        )
        spread = em.op("Reshape", self.batch, em.constant([-1, 1, 1, 1, 1], "shape"))
        pictures = em.op("Reshape", em.op("Expand", spread, shape(one)), em.constant([-1]))
        found = self.read(self, y, x, pictures)  # of R * oh * samples * ow * samples points
        channels = size(em, (dims_of(self.data) or (None,) * 4)[1], self.data, 1)
        count = em.op("Reshape", channels, one, hint="channels")
        values = em.op("Reshape", found, shape(em.constant([-1]), count), dtype=dtype)
        pooled = self._pooled(values, rows, columns)  # (R, oh, ow, C)
        return em.op("Transpose", pooled, attributes={"perm": [0, 3, 1, 2]}, dtype=dtype)

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
            return em.op("Reshape", value, em.constant(shape, "shape"), dtype=dtype)

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
            flat = em.op("Reshape", count, em.constant([-1]), dtype=dtype)
            listed = em.op(
                "Concat", flat, numbers.constant([1]), attributes={"axis": 0}, dtype=dtype
            )
            most = reduce(em, "ReduceMax", listed, [0], keepdims=False)
            whole = cast(em, most, ir.DataType.INT64)
            samples = em.op("Reshape", whole, em.constant([1]), hint="samples")
            if em.opset < 11:
                steps = count_up(em, samples)
            else:
                steps = em.op("Range", em.constant(0), whole, em.constant(1), hint="numbered")
            numbered = cast(em, steps, dtype)
            divisor = numbers.op("Max", count, 1)
        numbered = shaped(numbered, (place + 1, -1))
        bin_places = numbers.constant(np.arange(bins, dtype=np.float64))
        before = numbers.op("Mul", shaped(bin_places, (place, bins)), one_bin)
        inside = numbers.op("Mul", numbers.op("Add", numbered, 0.5), one_bin)
        inside = numbers.op("Div", inside, divisor)
        at = numbers.op("Add", numbers.op("Add", start, before), inside)
        if count is not None:
            counts = em.op("Less", numbered, count, dtype=_BOOL)
        return _Line(at, samples, count, counts)

    def _pooled(self, values: ir.Value, rows: _Line, columns: _Line) -> ir.Value:
        """Return the mean or the largest of the samples of each bin; 0 where there are none."""
        em, numbers, axes = self.numbers.em, self.numbers, [2, 4]
        if rows.counts is None or columns.counts is None:
            op_type = "ReduceMean" if self.mode == "avg" else "ReduceMax"
            return reduce(em, op_type, values, axes, keepdims=False)
        counts = em.op("And", rows.counts, columns.counts, dtype=_BOOL)
        filling = numbers.constant(0 if self.mode == "avg" else -np.inf)
        kept = where(em, counts, values, filling)
        assert rows.count is not None
        assert columns.count is not None
        held = [numbers.op("Max", line, 0) for line in (rows.count, columns.count)]
        total = numbers.op("Mul", *held)
        total = em.op("Reshape", total, em.constant([-1, 1, 1, 1], "shape"), dtype=numbers.dtype)
        if self.mode == "avg":
            added = reduce(em, "ReduceSum", kept, axes, keepdims=False)
            return numbers.op("Div", added, numbers.op("Max", total, 1))
        largest = reduce(em, "ReduceMax", kept, axes, keepdims=False)
        is_sampled = numbers.is_greater(total, numbers.constant(0))
        return where(em, is_sampled, largest, numbers.constant(0))


def _boxes_around(pool: Pool, y: ir.Value, x: ir.Value, pictures: ir.Value) -> ir.Value:
    """Return the pixels at points: of a box of one pixel around each."""
    em, numbers = pool.numbers.em, pool.numbers
    points = em.op("Concat", x, y, x, y, attributes={"axis": 1}, dtype=numbers.dtype, hint="points")
    boxes = numbers.op("Add", points, numbers.constant([-0.5, -0.5, 0.5, 0.5]))
    attributes: dict[str, AttributeValue] = {"mode": pool.mode, "sampling_ratio": 1}
    return em.op("RoiAlign", pool.data, boxes, pictures, attributes=attributes, dtype=numbers.dtype)
