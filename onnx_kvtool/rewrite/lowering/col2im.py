"""Col2Im-18, for opsets below 18."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import reduce, where
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import dims_of


def lower_col2im_18(view: Rewritten, em: Emitter) -> ir.Value:
    """Add up what the blocks hold of each row of the image, one axis after the other.

    image[y] = sum over q of block element q at block (y + pad - dilation * q) / stride

    Where there is no such block a row of zeros is gathered. The tables of rows are computed when
    the model runs unless the shapes are constant. Only numbers that belong to one element are ever
    added up, so that what is not a number stays where it belongs.

    Refuses an unknown number of axes.
    """
    data, image, block = view.operands("input", "image_shape", "block_shape")
    count = _count(image) or _count(block)
    if count is None:
        raise Refusal(
            "unknown-dimension",
            f"the number of elements of `{image.name}` is unknown, and Col2Im came with opset 18",
            help="declare its shape",
        )
    lines = [_Line(em, view, image, block, axis, count) for axis in range(count)]
    sizes = [*(line.elements for line in lines), *(line.blocks for line in lines)]
    apart = em.op("Reshape", data, _joined(em, *sizes), hint="blocks")
    perm = [0, 1, *(p for axis in range(count) for p in (2 + axis, 2 + count + axis))]
    turned = em.op("Transpose", apart, perm=perm)
    rows = _joined(em, *(line.rows for line in lines))
    result = em.op("Reshape", turned, rows, hint="rows")
    result = em.op(
        "Pad", result, [0] * (count + 4) + [1] * count
    )  # a row of zeros behind each axis
    for axis, line in enumerate(lines, 2):
        taken = em.op("Gather", result, line.table(), axis=axis)
        result = reduce(em, "ReduceSum", taken, [axis + 1], keepdims=False)
    return result


def _count(value: ir.Value) -> int | None:
    dims = dims_of(value)
    return dims[0] if dims is not None and len(dims) == 1 and isinstance(dims[0], int) else None


def _joined(em: Emitter, *sizes: ir.Value) -> ir.Value:
    """Return the shape (N, C, *sizes); N is copied and C follows."""
    return em.op("Concat", [0, -1], *sizes, axis=0, hint="shape")


class _Line:
    """The blocks along one axis; sizes are (1,), int64.

    Attributes:
        length: Size of the image.
        elements: Elements of a block.
        blocks: Number of blocks.
        rows: Elements of all blocks.
    """

    def __init__(
        self, em: Emitter, view: NodeView, image: ir.Value, block: ir.Value, axis: int, count: int
    ) -> None:
        ones, pads = [1] * count, view.integers("pads") or [0] * 2 * count
        self.em = em
        self.stride = (view.integers("strides") or ones)[axis]
        self.dilation = (view.integers("dilations") or ones)[axis]
        self.before = pads[axis]
        padding = self.before + pads[axis + count]
        place = em.constant([axis])
        self.length = em.op("Gather", image, place, hint="length")
        self.elements = em.op("Gather", block, place, hint="elements")
        # The first window is as long as the reach of a block, each other one a stride further.
        gaps = self._op("Mul", self._op("Sub", self.elements, 1), self.dilation)
        room = self._op("Sub", self._op("Add", self.length, padding - 1), gaps)
        self.blocks = self._op("Add", self._op("Div", room, self.stride), 1)
        self.rows = self._op("Mul", self.elements, self.blocks)

    def _op(self, op_type: str, a: ir.Value, b: ir.Value | int) -> ir.Value:
        other = self.em.constant([b]) if isinstance(b, int) else b
        if isinstance(b, int) and b == (1 if op_type in ("Mul", "Div") else 0):
            return a
        return self.em.op(op_type, a, other)

    def _counted(self, size: ir.Value, shape: list[int]) -> ir.Value:
        scalar = self.em.op("Reshape", size, [])
        counted = self.em.op("Range", 0, scalar, 1)
        return self.em.op("Reshape", counted, shape)

    def table(self) -> ir.Value:
        """Return for each row of the image the rows of the blocks: (length, elements), int64.

        Those that are not there are the row behind all others.
        """
        em = self.em
        op = em.op
        y, q = self._counted(self.length, [-1, 1]), self._counted(self.elements, [1, -1])
        way = self._op("Sub", self._op("Add", y, self.before), self._op("Mul", q, self.dilation))
        number = self._op("Div", way, self.stride)
        begins = op("Less", way, [0])
        ends = op("Less", number, self.blocks)
        is_there = op("And", op("Not", begins), ends)
        if self.stride != 1:
            whole = op("Equal", self._op("Mul", number, self.stride), way)
            is_there = op("And", is_there, whole)
        row = self._op("Add", self._op("Mul", q, self.blocks), number)
        return where(em, is_there, row, self.rows)
