"""Col2Im-18, for opsets below 18."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import Term, reduce
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
    sides = Term(em, image), Term(em, block)
    lines = [_Line(view, *sides, axis, count) for axis in range(count)]
    sizes = [*(line.elements for line in lines), *(line.blocks for line in lines)]
    apart = em.op("Reshape", data, _joined(em, *sizes))
    perm = [0, 1, *(p for axis in range(count) for p in (2 + axis, 2 + count + axis))]
    turned = em.op("Transpose", apart, perm=perm)
    result = em.op("Reshape", turned, _joined(em, *(line.rows for line in lines)))
    # A row of zeros stands behind each axis.
    result = em.op("Pad", result, [0] * (count + 4) + [1] * count)
    for axis, line in enumerate(lines, 2):
        taken = em.op("Gather", result, line.table(), axis=axis)
        result = reduce(em, "ReduceSum", taken, [axis + 1], keepdims=False)
    return result


def _count(value: ir.Value) -> int | None:
    dims = dims_of(value)
    return dims[0] if dims is not None and len(dims) == 1 and isinstance(dims[0], int) else None


def _joined(em: Emitter, *sizes: Term) -> ir.Value:
    """Return the shape (N, C, *sizes); N is copied and C follows."""
    return em.op("Concat", [0, -1], *sizes, axis=0)


class _Line:
    """The blocks along one axis; sizes are (1,), int64.

    Attributes:
        length: Size of the image.
        elements: Elements of a block.
        blocks: Number of blocks.
        rows: Elements of all blocks.
    """

    def __init__(self, view: NodeView, image: Term, block: Term, axis: int, count: int) -> None:
        ones, pads = [1] * count, view.integers("pads") or [0] * 2 * count
        self.stride = (view.integers("strides") or ones)[axis]
        self.dilation = (view.integers("dilations") or ones)[axis]
        self.before = pads[axis]
        self.length, self.elements = (x.op("Gather", [axis]) for x in (image, block))
        # The first window is as long as the reach of a block, each other one a stride further.
        gaps = (self.elements - [1]) * [self.dilation]
        room = self.length - gaps + [self.before + pads[axis + count] - 1]
        self.blocks = room / [self.stride] + [1]
        self.rows = self.elements * self.blocks

    def table(self) -> ir.Value:
        """Return for each row of the image the rows of the blocks: (length, elements), int64.

        Those that are not there are the row behind all others.
        """
        em = self.length.em
        y, q = (
            Term(em, em.op("Range", 0, size.op("Reshape", []), 1)).op("Reshape", shape)
            for size, shape in ((self.length, [-1, 1]), (self.elements, [1, -1]))
        )
        way = y - q * [self.dilation] + [self.before]
        number = way / [self.stride]
        is_whole = (number * [self.stride]).op("Equal", way)
        is_there = ~(way < [0]) & (number < self.blocks) & is_whole
        return is_there.where(q * self.blocks + number, self.rows).value
