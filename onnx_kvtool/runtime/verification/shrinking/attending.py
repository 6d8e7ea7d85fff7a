"""How the operators of attention tie heads and the size of a head."""

from __future__ import annotations

from onnx_kvtool.runtime.verification.shrinking.call import Call
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, Size, bind, factor, pin

__all__ = [
    "attention",
    "group_query_attention",
    "rotary_embedding",
    "scatter_elements",
    "scatter_nd",
    "tensor_scatter",
]

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
    _name(key_heads, heads, size, size)
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
    _name(key[1], query[1], query[3], value[3])
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
    _name(key_heads, heads, size, value_size)
    return heads, key_heads, size, value_size


def _name(key_heads: Size, heads: Size, size: Size, value_size: Size) -> None:
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
