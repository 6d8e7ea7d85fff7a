"""How quantised weights tie their blocks, scales and zero points."""

from __future__ import annotations

from onnx_kvtool.runtime.verification.shrinking.call import Call
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, Size, bind, factor, pin

__all__ = ["blocks_of", "codes", "dequantize", "gather_block_quantized", "mat_mul_n_bits"]


def dequantize(call: Call) -> list[Shape | None] | None:
    """Scales are one number, one for each index of an axis, or one for each block along it."""
    shape = call.shape(0)
    if shape is None:
        return None
    axis = call.axis(shape)
    block = call.number("block_size")
    for index in range(1, len(call.node.input)):
        scale = call.shape(index)
        if not call.has(index):
            continue
        if scale is None:
            return None
        if not scale or (len(scale) == 1 and scale[0].is_one and not block):
            continue
        if axis is None:
            return None
        if not block:
            if len(scale) != 1:
                return None
            shape[axis].join(scale[0])
        elif not _blocked(shape, scale, axis, block):
            return None
    return [shape]


def _blocked(shape: Shape, scale: Shape, axis: int, block: int) -> bool:
    """Tie the scales of blocks; return whether they fit."""
    if len(scale) != len(shape):
        return False
    for place, (one, other) in enumerate(zip(shape, scale, strict=True)):
        if place != axis:
            one.join(other)
    whole, count = shape[axis].number, scale[axis].number
    if whole is None or count is None or whole != count * block:
        return False
    _name(scale[axis])
    factor([shape[axis]], [scale[axis], bind(block)])
    return True


def mat_mul_n_bits(call: Call) -> list[Shape | None] | None:
    """K is blocks times their size; the weights are (N, blocks, bytes of a block)."""
    a, b, scales = (call.shape(index) for index in range(3))
    columns, rows = call.number("K"), call.number("N")
    size, bits = call.number("block_size"), call.number("bits")
    if a is None or b is None or scales is None or len(b) != 3 or call.has(4):
        return None
    if size < 1 or columns % size or (b[1].number, a[-1].number) != (columns // size, columns):
        return None
    n, blocks = b[0], b[1]
    if n.number != rows:
        return None
    _name(blocks)
    pin(b[2:])
    factor([a[-1]], [blocks, bind(size)])
    for place, values in ((2, scales), (3, call.shape(3) if call.has(3) else None)):
        if values is not None and not _of_blocks(values, n, blocks, bits, is_packed=place == 3):
            return None
    if call.has(5):
        bias = call.shape(5)
        if bias is None or len(bias) != 1:
            return None
        bias[0].join(n)
    call.link_attribute("K", a[-1])
    call.link_attribute("N", n)
    return [[*a[:-1], n]]


def gather_block_quantized(call: Call) -> list[Shape | None] | None:
    """Rows of codes with scales of their blocks, as wide as the codes are when they are unpacked.

    Codes that lie otherwise, or blocks that do not fill a row, keep their sizes.
    """
    data, indices, scales = (call.shape(index) for index in range(3))
    block, bits = call.number("block_size"), call.number("bits")
    if data is None or indices is None or scales is None or len(data) != len(scales):
        return None
    last = len(data) - 1
    if last < 1 or call.number("gather_axis") or call.number("quantize_axis") not in (-1, last):
        return None
    columns = (scales[-1].number or 0) * block
    if not columns or not 0 < bits <= 8:
        return None
    width = bind(columns, is_pinned=False)
    zero = call.shape(3) if call.has(3) else None
    if not codes(data[-1], width, bits) or not blocks_of(width, scales[-1], block, zero, bits):
        return None
    for one, other in zip(data[:-1], scales[:-1], strict=True):
        one.join(other)
    for one, other in zip(data[:-1], zero or (), strict=False):
        one.join(other)
    if call.is_token[1]:
        for atom in data[0].atoms():
            atom.what = atom.what or "tokens"
    else:
        pin(data[:1])
    return [[*indices, *data[1:-1], width]]


def codes(packed: Size, width: Size, bits: int) -> bool:
    """Tie so many numbers to the bytes that hold them, or to themselves; return whether it fits."""
    if packed.number == width.number:
        packed.join(width)
        return True
    per_byte = 8 // bits
    if packed.number is None or packed.number * per_byte != width.number:
        return False
    factor([width], [packed, bind(per_byte)])
    return True


def blocks_of(width: Size, count: Size, block: int, zero: Shape | None, bits: int) -> bool:
    """Tie a width to its blocks and their zero points; return whether they fit."""
    if count.number is None or count.number * block != width.number:
        return False
    _name(count)
    factor([width], [count, bind(block)])
    if zero and not codes(zero[-1], count, bits):
        pin([count, zero[-1]])  # the last byte is not filled
    return True


def _of_blocks(values: Shape, n: Size, blocks: Size, bits: int, *, is_packed: bool) -> bool:
    """Tie numbers of which each block of each column has one; return whether they fit."""
    count, number = blocks.number or 0, n.number or 0
    each = blocks
    total = 1
    for size in values:
        total *= size.number or 0
    if is_packed and total != count * number:
        per_byte = 8 // bits
        if total != number * -(-count // per_byte):
            return False
        if count % per_byte:
            pin([blocks])
            each = bind(-(-count // per_byte))
        else:
            each = bind(count // per_byte, is_pinned=False)
            factor([blocks], [each, bind(per_byte)])
    elif total != count * number:
        return False
    factor(values, [n, each])
    return True


def _name(blocks: Size) -> None:
    for atom in blocks.atoms():
        atom.what = "blocks of weights"
