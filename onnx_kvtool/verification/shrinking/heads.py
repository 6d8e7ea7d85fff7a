"""How attention, experts and quantized weights tie heads, widths and blocks."""

from __future__ import annotations

from onnx_kvtool.verification.shrinking.sizes import Call, Shape, Size, bind, factor, pin

__all__ = [
    "attention",
    "blocks_of",
    "dequantize",
    "fit_packed",
    "gather_block_quantized",
    "group_query_attention",
    "mat_mul_n_bits",
    "mixture_of_experts",
    "quantized_mixture_of_experts",
    "rotary_embedding",
    "scatter_elements",
    "scatter_nd",
    "tensor_scatter",
    "top_k",
]


# How the operators of attention tie heads and the size of a head.


_FEWEST = 8
"""onnxruntime's GroupQueryAttention takes heads of a multiple of 8 elements, or of 16 turned."""


def attention(call: Call) -> list[Shape | None] | None:
    """Query heads are groups of as many as share a key; widths are heads times their size."""
    query, key, value = (call.shape(index) for index in range(3))
    if query is None or key is None or value is None:
        return None
    if not len(query) == len(key) == len(value):
        return None
    is_flat = len(query) == 3
    found = _heads_of_rows(call, query, key, value) if is_flat else _heads(query, key, value)
    if found is None:
        return None
    heads, key_heads, size, value_size = found
    key[-2].join(value[-2])
    if mask := call.shape(3):
        _tie_mask(mask, heads)
    total = key[-2]
    for index, past_size in ((4, size), (5, value_size)):
        if past := call.shape(index):
            if len(past) != 4:
                return None
            past[1].join(key_heads)
            past[3].join(past_size)
            pin([past[2]])
            total = bind(None)
    if not any(attribute.name == "scale" for attribute in call.node.attribute):
        call.links.scales[call.index] = size
    pin([key[-2]])
    result: Shape = [*query[:-1], value_size]
    if is_flat:
        width = bind((heads.number or 0) * (value_size.number or 0), is_pinned=False)
        factor([width], [heads, value_size])
        result = [query[0], query[1], width]
    outputs: list[Shape | None] = [
        result,
        [query[0], key_heads, total, size],
        [query[0], key_heads, total, value_size],
        [query[0], heads, query[-2], total],
    ]
    return outputs[: len(call.node.output)]


def group_query_attention(call: Call) -> list[Shape | None] | None:
    """Widths are heads times their size, which the caches and the rotary tables share.

    Heads that are turned in part, packed queries, and what else the operator may read keep all, so
    that only what stands before and behind is smaller.
    """
    return _scaled_heads(call) or _kept_heads(call)


def _kept_heads(call: Call) -> list[Shape | None] | None:
    """Return the sizes of heads that are as large as they were; None if they are not known."""
    query, is_packed = call.shape(0), not call.has(1)
    count, shared = call.number("num_heads"), call.number("kv_num_heads")
    if query is None or len(query) != 3 or query[2].number is None or min(count, shared) < 1:
        return None
    heads = count + 2 * shared if is_packed else count
    if query[2].number % heads:
        return None
    pin(*call.shapes)
    size = query[2].number // heads
    present: Shape = [query[0], bind(shared), bind(None), bind(size)]
    outputs: list[Shape | None] = [[*query[:2], bind(count * size)], present, [*present]]
    return outputs if len(call.node.output) <= len(outputs) else None


def _scaled_heads(call: Call) -> list[Shape | None] | None:
    """Tie the sizes of heads that may be smaller and fewer; None if they may not."""
    query, key, value, *pasts = (call.shape(index) for index in range(5))
    rest = range(9, len(call.node.input))
    if query is None or key is None or value is None or any(call.has(index) for index in rest):
        return None
    count, shared = call.number("num_heads"), call.number("kv_num_heads")
    width = query[-1].number
    if width is None or min(count, shared) < 1 or count % shared or width % (count * _FEWEST):
        return None
    if key[-1].number != value[-1].number or key[-1].number != width // count * shared:
        return None
    halves = 2 * _FEWEST
    if width // count % halves:
        return None
    heads, key_heads, group, part = (
        bind(number, is_pinned=False)
        for number in (count, shared, count // shared, width // count // halves)
    )
    size = bind(width // count, is_pinned=False)
    factor([size], [bind(2), part, bind(_FEWEST)])
    factor([heads], [key_heads, group])
    factor([query[-1]], [key_heads, group, size])
    for operand in (key, value):
        factor([operand[-1]], [key_heads, size])
    for past in pasts:
        if past is not None:
            if len(past) != 4:
                return None
            past[1].join(key_heads)
            past[3].join(size)
            pin([past[2]])
    if call.number("do_rotary") and not _turns_all(call, size):
        return None
    call.link_attribute("num_heads", heads)
    call.link_attribute("kv_num_heads", key_heads)
    if not any(attribute.name == "scale" and attribute.f for attribute in call.node.attribute):
        call.links.scales[call.index] = size
    _name_heads(key_heads, heads, size, size)
    present: Shape = [query[0], key_heads, bind(None), size]
    outputs: list[Shape | None] = [[*query], present, [*present]]
    return outputs if len(call.node.output) <= len(outputs) else None


def _turns_all(call: Call, size: Size) -> bool:
    """Tie the columns of rotary tables, half as many as a head has elements; else return False."""
    if call.number("rotary_interleaved"):
        return False
    for index in (7, 8):
        table = call.shape(index)
        if table is None or len(table) != 2 or 2 * (table[1].number or 0) != size.number:
            return False
        pin([table[0]])  # positions index it
        factor([size], [bind(2), table[1]])
    return True


_Found = tuple[Size, Size, Size, Size]


def _heads(query: Shape, key: Shape, value: Shape) -> _Found | None:
    if len(query) != 4 or query[1].number is None or key[1].number is None:
        return None
    if key[1].number == 0 or query[1].number % key[1].number:
        return None
    key[1].join(value[1])
    query[3].join(key[3])
    group = bind(query[1].number // key[1].number, is_pinned=False)
    factor([query[1]], [key[1], group])
    _name_heads(key[1], query[1], query[3], value[3])
    return query[1], key[1], query[3], value[3]


def _heads_of_rows(call: Call, query: Shape, key: Shape, value: Shape) -> _Found | None:
    """Take the widths of rank 3 apart, as the attributes say."""
    count, shared = call.number("q_num_heads"), call.number("kv_num_heads")
    widths = [shape[2].number for shape in (query, key, value)]
    if count < 1 or shared < 1 or count % shared or None in widths:
        return None
    of_query, of_key, of_value = (width or 0 for width in widths)
    if of_query % count or of_key % shared or of_value % shared:
        return None
    heads, key_heads, group, size, value_size = (
        bind(number, is_pinned=False)
        for number in (count, shared, count // shared, of_query // count, of_value // shared)
    )
    factor([heads], [key_heads, group])
    factor([query[2]], [key_heads, group, size])
    factor([key[2]], [key_heads, size])
    factor([value[2]], [key_heads, value_size])
    call.link_attribute("q_num_heads", heads)
    call.link_attribute("kv_num_heads", key_heads)
    _name_heads(key_heads, heads, size, value_size)
    return heads, key_heads, size, value_size


def _name_heads(key_heads: Size, heads: Size, size: Size, value_size: Size) -> None:
    for what, sizes in (("heads", (key_heads, heads)), ("elements of a head", (size, value_size))):
        for one in sizes:
            for atom in one.atoms():
                atom.what = what


def _tie_mask(mask: Shape, heads: Size) -> None:
    pin(mask[-1:])
    if len(mask) > 2 and not mask[-3].is_one:
        mask[-3].join(heads)


def rotary_embedding(call: Call) -> list[Shape | None] | None:
    """A head is two halves, or pairs; the tables have as many columns as there are pairs."""
    x, cosine, sine = (call.shape(index) for index in range(3))
    if x is None or cosine is None or sine is None or x[-1].number is None:
        return None
    count = call.number("num_heads") if len(x) == 3 else 1
    if count < 1 or x[-1].number % count:
        return None
    size = bind(x[-1].number // count, is_pinned=False)
    heads = bind(count, is_pinned=False)
    if len(x) == 3:
        factor([x[-1]], [heads, size])
        call.link_attribute("num_heads", heads)
    else:
        size = x[-1]
    turned = call.number("rotary_embedding_dim")
    cosine[-1].join(sine[-1])
    if call.has(3):
        pin(cosine[:-1], sine[:-1])  # positions index them
    number = size.number or 0
    if turned not in (0, number) or number % 2 or cosine[-1].number != number // 2:
        pin([size, cosine[-1]])
        return [x]
    halves = [cosine[-1], bind(2)] if call.number("interleaved") else [bind(2), cosine[-1]]
    factor([size], halves)
    if turned:
        call.link_attribute("rotary_embedding_dim", size)
    return [x]


def tensor_scatter(call: Call) -> list[Shape | None] | None:
    """The rows of a cache stay as many as they are, and so do those that are written."""
    past, update = call.shape(0), call.shape(1)
    axis = call.axis(past)
    if past is None or update is None or axis is None or len(past) != len(update):
        return None
    for place, (one, other) in enumerate(zip(past, update, strict=True)):
        if place == axis:
            pin([one, other])
        else:
            one.join(other)
    return [past]


def scatter_nd(call: Call) -> list[Shape | None] | None:
    """Sizes that indices point along are those of the updates, or stay as they are."""
    data, indices, updates = (call.shape(index) for index in range(3))
    if data is None or indices is None or updates is None or not indices:
        return None
    depth = indices[-1].number
    if depth is None or depth > len(data) or len(updates) != len(indices) - 1 + len(data) - depth:
        return None
    for one, other in zip(data[depth:], updates[len(indices) - 1 :], strict=True):
        one.join(other)
    for one, other in zip(indices[:-1], updates, strict=False):
        one.join(other)
    pin(indices[-1:])
    for place, size in enumerate(data[:depth]):
        along = updates[place] if len(updates) == len(data) else None
        if along is not None and along.number == size.number and size.number is not None:
            size.join(along)
            for atom in size.atoms():
                atom.is_indexed = True
        else:
            pin([size])
    return [data]


def scatter_elements(call: Call) -> list[Shape | None] | None:
    """All sizes but that of the axis are those of the updates."""
    data, indices, updates = (call.shape(index) for index in range(3))
    axis = call.axis(data)
    if data is None or indices is None or updates is None or axis is None:
        return None
    if not len(data) == len(indices) == len(updates):
        return None
    for place, (one, index, other) in enumerate(zip(data, indices, updates, strict=True)):
        index.join(other)
        if place == axis:
            pin([one, other])
        else:
            one.join(other)
    return [data]


# How quantised weights tie their blocks, scales and zero points.


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
    _name_blocks(scale[axis])
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
    _name_blocks(blocks)
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
    """Rows of quantized values with scales of their blocks, as wide as the unpacked values.

    Values in another layout, or blocks that do not fill a row, keep their sizes.
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
    if not fit_packed(data[-1], width, bits) or not blocks_of(width, scales[-1], block, zero, bits):
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


def fit_packed(packed: Size, width: Size, bits: int) -> bool:
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
    _name_blocks(count)
    factor([width], [count, bind(block)])
    if zero and not fit_packed(zero[-1], count, bits):
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


def _name_blocks(blocks: Size) -> None:
    for atom in blocks.atoms():
        atom.what = "blocks of weights"


# How mixtures of experts tie the widths of their products.


_INTERLEAVED = 1
"""`swiglu_fusion`: gate and value of each inner feature stand side by side."""


def mixture_of_experts(call: Call) -> list[Shape | None] | None:
    """Weights of (experts, out, in) lead from the width to an inner one and back.

    There stay as many experts, of which a token chooses as many.
    """
    return _tied(call, ((2, 3), (4, 5), (6, 7)), None)


def quantized_mixture_of_experts(call: Call) -> list[Shape | None] | None:
    """Weights are quantized, with a scale for each row of an expert, or each block of it.

    Weights that come with scales of another kind keep their sizes.
    """
    if any(call.has(index) for index in range(15, len(call.node.input))):
        return None
    if call.shape(14) is not None:
        pin(call.shape(14))
    return _tied(call, ((2, 4), (5, 7), (8, 10)), call.number("expert_weight_bits"))


def _tied(
    call: Call, places: tuple[tuple[int, int], ...], bits: int | None
) -> list[Shape | None] | None:
    """Tie what the products read.

    Args:
        call: The node.
        places: Of each product, which inputs are its weight and its bias.
        bits: Of a quantized value; None for other weights.
    """
    shape, router = call.shape(0), call.shape(1)
    weights = [call.shape(weight) if call.has(weight) else None for weight, _ in places]
    first, second, third = weights
    if shape is None or first is None or second is None or {len(first), len(second)} != {3}:
        return None
    pin(router[-1:] if router else None, first[:1], second[:1])
    width, inner = shape[-1], _unpacked(second[2], bits)
    if width.number is None or inner.number is None:
        return None
    second[1].join(width)
    if first[1].number == inner.number:
        first[1].join(inner)
    elif first[1].number == 2 * inner.number:
        is_interleaved = call.number("swiglu_fusion") == _INTERLEAVED
        factor([first[1]], [inner, bind(2)] if is_interleaved else [bind(2), inner])
    else:
        return None
    if third is not None:
        if len(third) != 3:
            return None
        pin(third[:1])
        third[1].join(inner)
    for number, (columns, (weight, bias)) in enumerate(
        zip((width, inner, width), places, strict=True)
    ):
        read = weights[number]
        if read is None:
            continue
        if bits is None:
            read[2].join(columns)
        elif not _quantised(call, number, weight, read, columns, bits):
            return None
        if (added := call.shape(bias)) is not None:
            if len(added) != 2:
                return None
            pin(added[:1])
            added[1].join(read[1])
    return [shape]


def _unpacked(size: Size, bits: int | None) -> Size:
    """Return how many numbers so many bytes hold."""
    if bits is None or size.number is None:
        return size
    width = bind(size.number * (8 // bits), is_pinned=False)
    fit_packed(size, width, bits)
    return width


def _quantised(
    call: Call, number: int, weight: int, packed: Shape, columns: Size, bits: int
) -> bool:
    """Tie quantized values, scales and zero points of one product; return whether they fit."""
    own = call.number(f"fc{number + 1}_expert_weight_bits")
    if own not in (0, bits) or not fit_packed(packed[2], columns, bits):
        return False
    scales, zero = (
        call.shape(weight + 1),
        call.shape(11 + number) if call.has(11 + number) else None,
    )
    block = call.number("block_size")
    if scales is None or len(scales) != (3 if block else 2):
        return False
    pin(scales[:1], zero[:1] if zero else None)
    scales[1].join(packed[1])
    if block:
        if zero:
            zero[1].join(packed[1])
        return blocks_of(columns, scales[2], block, zero, bits)
    if zero and not fit_packed(zero[1], packed[1], bits):
        pin(zero, packed[1:2])
    return True


def top_k(call: Call) -> list[Shape | None] | None:
    """What is chosen from stays as it is."""
    shape, count = call.shape(0), call.constant(1)
    axis = call.axis(shape)
    if shape is None or axis is None:
        return None
    pin(shape[axis : axis + 1])
    number = count[0] if count else None
    return [[*shape[:axis], bind(number), *shape[axis + 1 :]] for _ in range(2)]
