"""RoiAlign-10, for opset 9."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, where
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.emit.sampling import Axis, Numbers
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import element_type, known_rank, product
from onnx_kvtool.rewrite.lowering.roi_align import Pool, sides_of
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_roi_align_10"]

_D = ir.DataType
_BOOL, _INT64 = _D.BOOL, _D.INT64


def lower_roi_align_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Gather the four pixels around each sample, and pool their shares.

    A box is one pixel large at least. With `mode=max` the largest share is taken, not the largest
    sample, as runtimes and onnx's own cases have it.

    Refuses an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data, rois, batch = (view.required(name) for name in ("X", "rois", "batch_indices"))
    dtype = element_type(data, "RoiAlign", 10)
    known_rank(data, "RoiAlign", 10)
    numbers = Numbers(em, _D.DOUBLE if dtype == _D.DOUBLE else _D.FLOAT)
    scale = view.attribute("spatial_scale")
    assert isinstance(scale, (int, float))
    boxes = numbers.op("Mul", cast(em, rois, numbers.dtype), float(scale))
    sides = numbers.op("Max", sides_of(numbers, boxes), 1)
    pool = Pool(
        numbers,
        cast(em, data, numbers.dtype),
        boxes,
        sides,
        batch,
        (view.integer("output_height"), view.integer("output_width")),
        view.integer("sampling_ratio"),
        view.string("mode"),
        _Pixels(data).read,
    )
    return Replacement((cast(em, pool.sampled(), dtype),))


class _Pixels:
    """The pixels of pictures: (N, C, H, W), of which the shape is looked at."""

    def __init__(self, data: ir.Value) -> None:
        self._data = data
        dims = dims_of(data) or (None,) * 4
        self._dims = dims
        self._axes = [Axis(dims[place], data, place) for place in (2, 3)]

    def read(self, pool: Pool, y: ir.Value, x: ir.Value, pictures: ir.Value) -> ir.Value:
        """Return the pixels at points, 0 for those more than one pixel outside: (P, C)."""
        em, numbers, dtype = pool.numbers.em, pool.numbers, pool.numbers.dtype
        turned = em.op("Transpose", pool.data, attributes={"perm": [0, 2, 3, 1]}, dtype=dtype)
        height, width = (product(em, self._data, self._dims, [place]) for place in (2, 3))
        channels = product(em, self._data, self._dims, [1])
        shape = em.op("Concat", em.constant([-1]), channels, attributes={"axis": 0}, hint="shape")
        table = em.op("Reshape", turned, shape, dtype=dtype, hint="pixels")  # (N * H * W, C)
        first = em.op("Mul", em.op("Reshape", pictures, em.constant([-1, 1])), height)
        rows, above = self._line(numbers, self._axes[0], y)
        columns, beside = self._line(numbers, self._axes[1], x)
        parts = []
        for row, share in rows:
            start = em.op("Mul", em.op("Add", first, row), width, hint="row")
            for column, other in columns:
                place = em.op("Reshape", em.op("Add", start, column), em.constant([-1]))
                pixel = em.op("Gather", table, place, attributes={"axis": 0}, dtype=dtype)
                parts.append(numbers.op("Mul", pixel, numbers.op("Mul", share, other)))
        op_type = "Add" if pool.mode == "avg" else "Max"
        value = parts[0]
        for part in parts[1:]:
            value = numbers.op(op_type, value, part)
        return where(em, em.op("Or", above, beside, dtype=_BOOL), numbers.constant(0), value)

    def _line(
        self, numbers: Numbers, axis: Axis, place: ir.Value
    ) -> tuple[list[tuple[ir.Value, ir.Value]], ir.Value]:
        """Return two pixels along an axis with their shares, and whether a point is far outside.

        Args:
            numbers: The type.
            axis: The axis.
            place: Points: (P, 1).
        """
        em = numbers.em
        last = axis.length(numbers, -1)
        before = numbers.is_greater(numbers.constant(-1), place)
        behind = numbers.is_greater(place, axis.length(numbers))
        held = numbers.clip(place, 0, last)
        low = numbers.op("Floor", held)
        far = numbers.op("Sub", held, low)
        high = numbers.op("Min", numbers.op("Add", low, 1), last)
        near = numbers.op("Sub", 1, far)
        rows = [(cast(em, low, _INT64), near), (cast(em, high, _INT64), far)]
        return rows, em.op("Or", before, behind, dtype=_BOOL)
