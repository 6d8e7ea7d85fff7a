"""How attention, experts and quantized weights tie heads, widths and blocks."""

from __future__ import annotations

import math

from onnx_kvtool.verification.shrinking.equal_sizes import (
    Call,
    Found,
    Shape,
    Size,
    Unknown,
    factor,
    fixed,
    join_all,
    merged,
    name,
    need,
    pin,
    replaced,
)

# How the operators of attention tie heads and the size of a head.


_FEWEST = 8
"""onnxruntime's GroupQueryAttention takes heads of a multiple of 8 elements, or of 16 turned."""


def attention(call: Call) -> Found:
    """Query heads are groups of as many as share a key; widths are heads times their size."""
    query, key, value = call.known(0, 1, 2)
    need(len(query) == len(key) == len(value))
    is_flat = len(query) == 3
    if is_flat:
        heads, key_heads = Size(call.number("q_num_heads")), Size(call.number("kv_num_heads"))
        size = Size(query[2].parted(heads.number))
        value_size = Size(value[2].parted(key_heads.number))
    else:
        need(len(query) == 4)
        heads, key_heads, size, value_size = query[1], key[1], query[3], value[3]
    _tie_groups(heads, key_heads)
    if is_flat:
        factor(query[2:], [heads, size])
        factor(key[2:], [key_heads, size])
        factor(value[2:], [key_heads, value_size])
        call.link_attribute("q_num_heads", heads)
        call.link_attribute("kv_num_heads", key_heads)
    else:
        join_all((key_heads, size), value[1:2] + key[3:])
    name("heads", key_heads, heads)
    name(_ELEMENTS, size, value_size)
    key[-2].join(value[-2])
    if mask := call.shape(3):
        pin(mask[-1:])
        for one, other in zip(mask[-2:-4:-1], (query[-2], heads), strict=False):
            if not one.is_one:
                one.join(other)
    total = key[-2]
    for index, past_size in ((4, size), (5, value_size)):
        if past := call.shape(index):
            _tie_past(past, key_heads, past_size)
            total = fixed()
    if not any(attribute.name == "scale" for attribute in call.node.attribute):
        call.sizes.scales[call.index] = size
    pin([key[-2]])
    widths = [merged([heads, value_size])] if is_flat else [value_size]
    outputs: list[Shape | None] = [
        [*query[:-1], *widths],
        [query[0], key_heads, total, size],
        [query[0], key_heads, total, value_size],
        [query[0], heads, query[-2], total],
    ]
    return outputs[: len(call.node.output)]


_ELEMENTS = "elements of a head"


def _tie_groups(heads: Size, key_heads: Size) -> None:
    factor([heads], [key_heads, Size(heads.parted(key_heads.number))])


def group_query_attention(call: Call) -> Found:
    """Widths are heads times their size, which the caches and the rotary tables share.

    Partly rotated heads, packed queries and other inputs keep all sizes, so that only what is
    before and behind the operator shrinks.
    """
    try:
        result, present = _scaled_heads(call)
    except Unknown:
        result, present = _kept_heads(call)
    need(len(call.node.output) <= 3)
    return [result, present, [*present]]


def _kept_heads(call: Call) -> tuple[Shape, Shape]:
    """Return the shapes of result and caches with heads that are as large as they were."""
    (query,) = call.known(0)
    count, shared = call.number("num_heads"), call.number("kv_num_heads")
    need(len(query) == 3 and min(count, shared) > 0)
    heads = count if call.name(1) else count + 2 * shared  # packed queries
    size = query[2].parted(heads)
    pin(*call.shapes)
    return [*query[:2], fixed(count * size)], [query[0], fixed(shared), fixed(), fixed(size)]


def _scaled_heads(call: Call) -> tuple[Shape, Shape]:
    """Tie the sizes of heads that may be smaller and fewer; return as `_kept_heads`."""
    query, key, value = call.known(0, 1, 2)
    need(not any(call.name(index) for index in range(9, len(call.node.input))))
    heads, key_heads = Size(call.number("num_heads")), Size(call.number("kv_num_heads"))
    count = heads.number
    part = Size(query[-1].parted(count * 2 * _FEWEST))
    size = Size(query[-1].parted(count))
    need(key[-1].number == value[-1].number == size.number * key_heads.number)
    factor([size], [fixed(2), part, fixed(_FEWEST)])
    _tie_groups(heads, key_heads)
    factor(query[-1:], [heads, size])
    for operand in (key, value):
        factor(operand[-1:], [key_heads, size])
    for past in (call.shape(3), call.shape(4)):
        if past is not None:
            _tie_past(past, key_heads, size)
    if call.number("do_rotary"):
        need(not call.number("rotary_interleaved"))
        for table in call.known(7, 8):  # half as many columns as a head has elements
            need(len(table) == 2 and 2 * table[1].number == size.number)
            pin([table[0]])  # positions index it
            factor([size], [fixed(2), table[1]])
    call.link_attribute("num_heads", heads)
    call.link_attribute("kv_num_heads", key_heads)
    if not any(attribute.name == "scale" and attribute.f for attribute in call.node.attribute):
        call.sizes.scales[call.index] = size
    name("heads", key_heads, heads)
    name(_ELEMENTS, size)
    return [*query], [query[0], key_heads, fixed(), size]


def _tie_past(past: Shape, key_heads: Size, size: Size) -> None:
    """Tie the sizes of a cache, whose rows stay as many."""
    need(len(past) == 4)
    join_all(past[1::2], (key_heads, size))
    pin([past[2]])


def rotary_embedding(call: Call) -> Found:
    """A head is two halves, or pairs; the tables have as many columns as there are pairs."""
    x, cosine, sine = call.known(0, 1, 2)
    size = x[-1]
    if len(x) == 3:
        heads = Size(call.number("num_heads"))
        size = Size(size.parted(heads.number))
        factor([x[-1]], [heads, size])
        call.link_attribute("num_heads", heads)
    number = size.parted(1)
    turned = call.number("rotary_embedding_dim")
    cosine[-1].join(sine[-1])
    if call.name(3):
        pin(cosine[:-1], sine[:-1])  # positions index them
    if turned not in (0, number) or number % 2 or cosine[-1].number != number // 2:
        pin([size, cosine[-1]])
        return [x]
    halves = [cosine[-1], fixed(2)] if call.number("interleaved") else [fixed(2), cosine[-1]]
    factor([size], halves)
    if turned:
        call.link_attribute("rotary_embedding_dim", size)
    return [x]


def tensor_scatter(call: Call) -> Found:
    """The rows of a cache stay as many as they are, and so do those that are written."""
    past, update = call.known(0, 1)
    pin(join_beside(past, update, call.axis(past)))
    return [past]


def join_beside(a: Shape, b: Shape, axis: int) -> tuple[Size, Size]:
    """Let two shapes be the same but along an axis; return their sizes there."""
    need(len(a) == len(b))
    join_all(replaced(a, axis), replaced(b, axis))
    return a[axis], b[axis]


def scatter_nd(call: Call) -> Found:
    """Sizes that indices point along are those of the updates, or stay as they are."""
    data, indices, updates = call.known(0, 1, 2)
    need(indices)
    depth = indices[-1].parted(1)
    need(depth <= len(data) and len(updates) == len(indices) - 1 + len(data) - depth)
    join_all(data[depth:], updates[len(indices) - 1 :])
    join_all(indices[:-1], updates)
    pin(indices[-1:])
    for place, size in enumerate(data[:depth]):
        along = updates[place] if len(updates) == len(data) else None
        if along is not None and along.number == size.number != 0:
            size.join(along)
            for atom in size.atoms():
                atom.is_indexed = True
        else:
            pin([size])
    return [data]


def scatter_elements(call: Call) -> Found:
    """All sizes but that of the axis are those of the updates."""
    data, indices, updates = call.known(0, 1, 2)
    need(len(indices) == len(updates))
    join_all(indices, updates)
    pin(join_beside(data, updates, call.axis(data)))
    return [data]


# How quantised weights tie their blocks, scales and zero points.


def dequantize(call: Call) -> Found:
    """Scales are one number, one for each index of an axis, or one for each block along it."""
    (shape,) = call.known(0)
    block = call.number("block_size")
    for scale in call.known(*(i for i in range(1, len(call.node.input)) if call.name(i))):
        if not scale or (len(scale) == 1 and scale[0].is_one and not block):
            continue
        axis = call.axis(shape)
        if block:
            _tie_blocks(*join_beside(shape, scale, axis), block)
        else:
            need(len(scale) == 1)
            shape[axis].join(scale[0])
    return [shape]


def mat_mul_n_bits(call: Call) -> Found:
    """K is blocks times their size; the weights are (N, blocks, bytes of a block)."""
    a, b, scales = call.known(0, 1, 2)
    columns, rows = call.number("K"), call.number("N")
    size, bits = call.number("block_size"), call.number("bits")
    need(len(b) == 3 and not call.name(4) and size > 0 and columns % size == 0)
    n, blocks = b[0], b[1]
    need((n.number, blocks.number, a[-1].number) == (rows, columns // size, columns))
    name(_BLOCKS, blocks)
    pin(b[2:])
    factor([a[-1]], [blocks, fixed(size)])
    _tie_to_blocks(scales, n, blocks, 8)
    if (zero := call.shape(3)) is not None:
        _tie_to_blocks(zero, n, blocks, bits)
    if call.name(5):
        (bias,) = call.known(5)
        need(len(bias) == 1)
        bias[0].join(n)
    call.link_attribute("K", a[-1])
    call.link_attribute("N", n)
    return [[*a[:-1], n]]


def gather_block_quantized(call: Call) -> Found:
    """Rows of quantized values with scales of their blocks, as wide as the unpacked values.

    Values in another layout, or blocks that do not fill a row, keep their sizes.
    """
    data, indices, scales = call.known(0, 1, 2)
    block, bits = call.number("block_size"), call.number("bits")
    last = len(data) - 1
    need(0 < last == len(scales) - 1 and 0 < bits <= 8)
    need(not call.number("gather_axis") and call.number("quantize_axis") in (-1, last))
    columns = scales[-1].number * block
    need(columns)
    width = Size(columns)
    zero = call.shape(3)
    need(_fit_packed(data[-1], width, bits))
    _tie_width(width, scales[-1], block, zero, bits)
    join_all(data[:-1], scales)
    join_all(data[:-1], zero or ())
    if call.is_token(1):
        name("tokens", data[0])
    else:
        pin(data[:1])
    return [[*indices, *data[1:-1], width]]


def _fit_packed(packed: Size, width: Size, bits: int) -> bool:
    """Tie so many numbers to the bytes that hold them, or to themselves; return whether it fits."""
    if packed.number == width.number:
        packed.join(width)
        return True
    per_byte = 8 // bits
    if packed.number * per_byte != width.number:
        return False
    factor([width], [packed, fixed(per_byte)])
    return True


def _tie_width(width: Size, count: Size, block: int, zero: Shape | None, bits: int) -> None:
    """Tie a width to its blocks and their zero points."""
    _tie_blocks(width, count, block)
    if zero and not _fit_packed(zero[-1], count, bits):
        pin([count, zero[-1]])  # the last byte is not filled


def _tie_blocks(width: Size, count: Size, block: int) -> None:
    """Tie a width to so many blocks of `block` values."""
    need(0 < count.number * block == width.number)
    name(_BLOCKS, count)
    factor([width], [count, fixed(block)])


_BLOCKS = "blocks of weights"


def _tie_to_blocks(values: Shape, n: Size, blocks: Size, bits: int) -> None:
    """Tie values of so many bits that each block of each column has one of, packed or not."""
    need(0 < bits <= 8)
    count, number = blocks.number, n.number
    each, per_byte = blocks, 8 // bits
    total = math.prod(size.number for size in values)
    if total != count * number:
        need(total == number * -(-count // per_byte))
        if count % per_byte:
            pin([blocks])
            each = fixed(-(-count // per_byte))
        else:
            each = Size(count // per_byte)
            factor([blocks], [each, fixed(per_byte)])
    factor(values, [n, each])


# How mixtures of experts tie the widths of their products.


_INTERLEAVED = 1
"""`swiglu_fusion`: gate and value of each inner feature stand side by side."""


def mixture_of_experts(call: Call) -> Found:
    """Weights of (experts, out, in) lead from the width to an inner one and back.

    The numbers of experts, and of experts that a token chooses, stay.
    """
    return _tied(call, ((2, 3), (4, 5), (6, 7)), None)


def quantized_mixture_of_experts(call: Call) -> Found:
    """Weights are quantized, with a scale for each row of an expert, or each block of it.

    Weights that come with scales of another kind keep their sizes.
    """
    need(not any(call.name(index) for index in range(15, len(call.node.input))))
    pin(call.shape(14))
    return _tied(call, ((2, 4), (5, 7), (8, 10)), call.number("expert_weight_bits"))


def _tied(call: Call, places: tuple[tuple[int, int], ...], bits: int | None) -> Found:
    """Tie what the products read.

    Args:
        call: The node.
        places: Of each product, which inputs are its weight and its bias.
        bits: Of a quantized value; None for other weights.
    """
    router = call.shape(1)
    shape, first, second = call.known(0, places[0][0], places[1][0])
    third = call.shape(places[2][0])
    need({len(first), len(second), 3 if third is None else len(third)} == {3})
    pin(router[-1:] if router else None, first[:1], second[:1])
    width = shape[-1]
    inner = Size(second[2].parted(1) * (8 // bits)) if bits else second[2]
    need(width.number and inner.number)
    need(not bits or _fit_packed(second[2], inner, bits))
    second[1].join(width)
    if first[1].number == inner.number:
        first[1].join(inner)
    else:
        need(first[1].number == 2 * inner.number)
        is_interleaved = call.number("swiglu_fusion") == _INTERLEAVED
        factor([first[1]], [inner, fixed(2)] if is_interleaved else [fixed(2), inner])
    if third is not None:
        pin(third[:1])
        third[1].join(inner)
    weights = (first, width), (second, inner), (third, width)
    for number, ((read, columns), (weight, bias)) in enumerate(zip(weights, places, strict=True)):
        if read is None:
            continue
        if bits is None:
            read[2].join(columns)
        else:
            _tie_quantized(call, number, weight, read, columns, bits)
        if (added := call.shape(bias)) is not None:
            need(len(added) == 2)
            pin(added[:1])
            added[1].join(read[1])
    return [shape]


def _tie_quantized(
    call: Call, number: int, weight: int, packed: Shape, columns: Size, bits: int
) -> None:
    """Tie quantized values, scales and zero points of one product."""
    own = call.number(f"fc{number + 1}_expert_weight_bits")
    need(own in (0, bits) and _fit_packed(packed[2], columns, bits))
    (scales,), zero = call.known(weight + 1), call.shape(11 + number)
    block = call.number("block_size")
    need(len(scales) == (3 if block else 2))
    pin(scales[:1], zero[:1] if zero else None)
    scales[1].join(packed[1])
    if block:
        if zero:
            zero[1].join(packed[1])
        _tie_width(columns, scales[2], block, zero, bits)
    elif zero and not _fit_packed(zero[1], packed[1], bits):
        pin(zero, packed[1:2])


def top_k(call: Call) -> Found:
    """What is chosen from stays as it is."""
    (shape,), count = call.known(0), call.constant(1)
    axis = call.axis(shape)
    pin(shape[axis : axis + 1])
    return [replaced(shape, axis, fixed(count[0] if count else 0)) for _ in range(2)]
