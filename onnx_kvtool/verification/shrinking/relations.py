"""How operators relate the sizes of their operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.traits import Trait, having
from onnx_kvtool.verification.shrinking.equal_sizes import (
    Call,
    Found,
    Shape,
    Size,
    Unknown,
    broadcast,
    factor,
    fixed,
    merged,
    name,
    need,
    pin,
    replaced,
)
from onnx_kvtool.verification.shrinking.head_sizes import (
    attention,
    dequantize,
    gather_block_quantized,
    group_query_attention,
    join_beside,
    mat_mul_n_bits,
    mixture_of_experts,
    quantized_mixture_of_experts,
    rotary_embedding,
    scatter_elements,
    scatter_nd,
    tensor_scatter,
    top_k,
)

# How Reshape and its kin take sizes apart and put them together.


def reshape(call: Call) -> Found:
    """A 0 copies a size, a number is one; sizes that are merged or split are products."""
    (shape,), target = call.known(0), call.target(1)
    need(not call.number("allowzero"))
    copied = [axis for axis, item in enumerate(target) if item.number == 0]
    need(max(copied, default=-1) < len(shape) and [i.number for i in target].count(-1) < 2)
    # The sizes that the integers of the target ask for; None for what is left.
    items = [
        shape[axis]
        if item.number == 0
        else item.size or (None if item.number == -1 else Size(item.number))
        for axis, item in enumerate(target)
    ]
    result = _matched(shape, items)
    call.link_target(1, {axis: result[axis] for axis, item in enumerate(target) if item.number > 1})
    return [result]


def _matched(shape: Shape, items: list[Size | None]) -> Shape:
    """Tie the sizes of an array to those of the same elements in another shape.

    One of the items may be None: it takes what is left.
    """
    begin = _from_front(shape, items)
    end = _from_front(shape[begin[0] :][::-1], items[begin[1] :][::-1], is_reversed=True)
    before = shape[begin[0] : len(shape) - end[0]]
    after = items[begin[1] : len(items) - end[1]]
    if after == [None]:
        items[begin[1]] = merged(before)
    elif (left := _left(before, after)) is not None:
        items[begin[1] + after.index(None)] = left
        factor(before, [size if size is not None else left for size in after])
    else:
        pin(before, [size for size in after if size is not None])
    return [size if size is not None else fixed() for size in items]


def _left(before: Shape, after: list[Size | None]) -> Size | None:
    """Return a size for what is left beside known ones; None if it is unknown."""
    known = [size.number for size in after if size is not None]
    whole, rest = math.prod(size.number for size in before), math.prod(known)
    is_known = len(known) < len(after) and whole and rest and whole % rest == 0
    return Size(whole // rest) if is_known else None


def _from_front(
    shape: Shape, items: list[Size | None], *, is_reversed: bool = False
) -> tuple[int, int]:
    """Tie sizes from one end on; return how many of both are tied."""
    i = j = 0
    while i < len(shape) and j < len(items):
        one, other = shape[i], items[j]
        if other is None:
            break
        if one.root() is other.root():
            i, j = i + 1, j + 1
            continue
        if not (one.number and other.number):
            if one.is_one or other.is_one:
                i, j = i + one.is_one, j + other.is_one
                continue
            break
        group = _group(shape[i:], items[j:])
        if group is None:
            break
        left, right = shape[i : i + group[0]], [s for s in items[j : j + group[1]] if s is not None]
        factor(left[::-1] if is_reversed else left, right[::-1] if is_reversed else right)
        i, j = i + group[0], j + group[1]
    while i < len(shape) and shape[i].is_one:
        i += 1
    while j < len(items) and (last := items[j]) is not None and last.is_one:
        j += 1
    return i, j


def _group(shape: Shape, items: list[Size | None]) -> tuple[int, int] | None:
    """Return how many sizes of both have one product; None if no known ones have."""
    a, b = list(_products(shape)), list(_products(items))
    return next(((a.index(n) + 1, b.index(n) + 1) for n in a if n in b), None)


def _products(sizes: Sequence[Size | None]) -> Iterator[int]:
    """Yield the product of each number of known sizes from the first one on."""
    product = 1
    for size in sizes:
        if size is None or not size.number:
            return
        product *= size.number
        yield product


def tile(call: Call) -> Found:
    """A size times a constant is a product."""
    (shape,), repeats = call.known(0), call.constant(1) or []
    need(len(repeats) == len(shape) and min(repeats, default=1) > 0)
    counts = {a: Size(n) for a, n in enumerate(repeats) if n > 1}
    call.link(1, counts)
    return [[merged([counts[a], size]) if a in counts else size for a, size in enumerate(shape)]]


def expand(call: Call) -> Found:
    """What is 1 takes a number of the target; the rest stays."""
    (shape,), target = call.known(0), call.target(1)
    rank = max(len(shape), len(target))
    old = [*(Size(1) for _ in target[len(shape) :]), *shape]
    result = old[: rank - len(target)]
    numbers: dict[int, Size] = {}
    for element, (size, item) in enumerate(zip(old[len(result) :], target, strict=True)):
        new = item.size or Size(item.number)
        if not size.is_one and not new.is_one:
            size.join(new)
        if item.number > 1:
            numbers[element] = new
        result.append(size if new.is_one else new)
    call.link_target(1, numbers)
    return [result]


def concat(call: Call) -> Found:
    """The same size several times is a product; other parts stay as they are."""
    need(call.node.input)
    first, *others = call.known(*range(len(call.node.input)))
    axis = call.axis(first)
    joined = [first[axis], *(join_beside(first, part, axis)[1] for part in others)]
    if len({size.root() for size in joined}) == 1 and joined[0].number:
        whole = merged([fixed(len(joined)), joined[0]])
    else:
        pin(joined)
        numbers = [size.number for size in joined]
        whole = fixed(sum(numbers) if all(numbers) else 0)
    return [replaced(first, axis, whole)]


def split(call: Call) -> Found:
    """Equal parts are a size of their own; others stay as they are."""
    (shape,) = call.known(0)
    axis = call.axis(shape)
    whole, count = shape[axis], len(call.node.output)
    given = call.numbers("split")
    sizes = given if given is not None else call.constant(1)
    is_equal = (sizes is None and not call.name(1)) or (sizes is not None and len(set(sizes)) == 1)
    if not (whole.number and is_equal) or whole.number % count:
        pin([whole])
        return [replaced(shape, axis, fixed(number)) for number in sizes or [0] * count]
    part = Size(whole.number // count)
    factor([whole], [fixed(count), part])
    for element in range(count):
        if given is not None:
            call.link_attribute("split", part, element)
    if given is None and sizes is not None:
        call.link(1, dict.fromkeys(range(count), part))
    return [replaced(shape, axis, part)] * count


def slice_(call: Call) -> Found:
    """One of two halves is a size of its own, and so is each other element; else all is kept."""
    (shape,), axes = call.known(0), call.constant(3)
    starts, ends = call.constant(1), call.constant(2)
    if axes is None or not all(-len(shape) <= a < len(shape) for a in axes):
        raise Unknown
    steps = call.constant(4) if call.name(4) else [1] * len(axes)
    result = list(shape)
    first: dict[int, Size] = {}
    last: dict[int, Size] = {}
    for element, axis in enumerate(axes):
        size, part = result[axis], None
        if starts is not None and ends is not None and steps is not None:
            start, end, step = starts[element], ends[element], steps[element]
            part = _part(size, start, end, step)
        if part is None:
            pin([size])
            result[axis] = fixed()
            continue
        result[axis] = part
        if start == part.number and step == 1:
            first[element] = part
        if end in (part.number, size.number):
            last[element] = part if end == part.number else size
    call.link(1, first)
    call.link(2, last)
    return [result]


def _part(size: Size, start: int, end: int, step: int) -> Size | None:
    """Return the size of one of two halves, or of each other element; None for anything else."""
    whole = size.number
    if not whole or whole % 2:
        return None
    half = whole // 2
    if (start, min(end, whole), step) not in (
        (0, half, 1),
        (half, whole, 1),
        (0, whole, 2),
        (1, whole, 2),
    ):
        return None
    part = Size(half)
    factor([size], [fixed(2), part] if step == 1 else [part, fixed(2)])
    return part


# How operators tie the sizes of their operands to each other.
#
# An operator stands in the table if its result means the same whatever the sizes are that it
# leaves unpinned: a product over 4096 columns and one over 24 are the same operation. An operator
# that stands nowhere keeps the sizes of everything it reads.
#
# None of this is read off `symbolic.rules`, on purpose: what verification rests on must not share
# a fault with the inference that a rewrite rests on.


_Rule = Callable[[Call], Found]


def unknown(call: Call) -> Found:
    """Stand for the rule of an operator without one."""
    raise Unknown


def _same(call: Call) -> Found:
    """Every output has the shape of the first input; further inputs are scalars."""
    return [call.shape(0)] * len(call.node.output)


def _elementwise(call: Call) -> Found:
    return [broadcast(call.shapes)]


def _normalization(call: Call) -> Found:
    """Scale, bias and a second addend broadcast to the input; the fourth output is the sum."""
    shape = broadcast([s for s in call.shapes if s is not None])
    outputs: list[Shape | None] = [shape, None, None, shape]
    return outputs[: len(call.node.output)]


def _matmul(call: Call) -> Found:
    a, b = call.known(0, 1)
    need(min(len(a), len(b)) > 1)
    a[-1].join(b[-2])
    return [[*(broadcast([a[:-2], b[:-2]]) or ()), a[-2], b[-1]]]


def _gemm(call: Call) -> Found:
    a, b = call.known(0, 1)
    need(len(a) == len(b) == 2)
    left = a[::-1] if call.number("transA") else a
    right = b[::-1] if call.number("transB") else b
    left[1].join(right[0])
    result = [left[0], right[1]]
    if call.name(2):
        # The bias has no more dimensions than the product.
        return [broadcast([result, call.shape(2)])]
    return [result]


def _gather(call: Call) -> Found:
    data, indices = call.known(0, 1)
    axis = call.axis(data)
    if call.is_token(1):
        name("tokens", data[axis])
    elif len(indices) == 1 and indices[0].number == data[axis].number:
        # A constant that puts all in another order; it may follow where it says so regularly.
        data[axis].join(indices[0])
        call.sizes.tables.append((call.node.input[1], data[axis]))
    else:
        pin(data[axis : axis + 1])
    return [replaced(data, axis, *indices)]


def _gather_elements(call: Call) -> Found:
    """Indices have the sizes of what they are taken from, but along the axis."""
    data, indices = call.known(0, 1)
    pin(join_beside(data, indices, call.axis(data)))
    return [indices]


def _transpose(call: Call) -> Found:
    (shape,) = call.known(0)
    order = call.numbers("perm")
    if order is None:
        return [shape[::-1]]
    need(sorted(order) == list(range(len(shape))))
    return [[shape[axis] for axis in order]]


def _axes(call: Call, rank: int) -> list[int]:
    """Return the axes of an attribute or of the second input."""
    axes = call.numbers("axes")
    if axes is None:
        axes = call.constant(1) if call.name(1) else []
    return _counted(axes, rank)


def _counted(axes: Sequence[int] | None, rank: int) -> list[int]:
    """Return axes counted from the front."""
    if axes is None or not all(-rank <= axis < rank for axis in axes):
        raise Unknown
    return [axis % rank for axis in axes]


def _unsqueeze(call: Call) -> Found:
    (shape,) = call.known(0)
    given = call.numbers("axes") or call.constant(1)
    rank = len(shape) + len(given or ())
    new = _counted(given, rank)
    need(len(set(new)) == len(new))
    rest = iter(shape)
    return [[fixed(1) if axis in new else next(rest) for axis in range(rank)]]


def _squeeze(call: Call) -> Found:
    (shape,) = call.known(0)
    axes = _axes(call, len(shape))
    need(axes)
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def _reduce(call: Call) -> Found:
    (shape,) = call.known(0)
    axes = _axes(call, len(shape))
    if not axes and not call.number("noop_with_empty_axes"):
        axes = list(range(len(shape)))
    if call.number("keepdims"):
        return [[fixed(1) if axis in axes else size for axis, size in enumerate(shape)]]
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def _shape(call: Call) -> Found:
    """The numbers follow the sizes when the model runs."""
    return [[fixed()]]


_STANDARD: Mapping[str, _Rule] = {
    "Attention": attention,
    "Concat": concat,
    "DequantizeLinear": dequantize,
    "Expand": expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    "Identity": _same,
    "LayerNormalization": _normalization,
    "LogSoftmax": _same,
    "MatMul": _matmul,
    "PRelu": _elementwise,
    "QuantizeLinear": dequantize,
    "RMSNormalization": _normalization,
    "Range": _shape,
    "Reshape": reshape,
    "RotaryEmbedding": rotary_embedding,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Shape": _shape,
    "SimplifiedLayerNormalization": _normalization,
    "Slice": slice_,
    "Softmax": _same,
    "Split": split,
    "Squeeze": _squeeze,
    "SwiGLU": _elementwise,
    "TensorScatter": tensor_scatter,
    "Tile": tile,
    "TopK": top_k,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""What the traits of an operator do not say."""

_CONTRIB: Mapping[str, _Rule] = {
    "GatherBlockQuantized": gather_block_quantized,
    "GroupQueryAttention": group_query_attention,
    "MatMulNBits": mat_mul_n_bits,
    "MoE": mixture_of_experts,
    "QMoE": quantized_mixture_of_experts,
    "SkipLayerNormalization": _normalization,
    "SkipSimplifiedLayerNormalization": _normalization,
}
"""Of `com.microsoft`."""

_OF_TRAITS: Sequence[tuple[Set[str], _Rule]] = (
    (having(Trait.BROADCASTS), _elementwise),
    (having(Trait.ELEMENTWISE, Trait.KEEPS_SHAPE) - having(Trait.RANDOM), _same),
    (having(Trait.REDUCES) - having(Trait.DECIDES), _reduce),
)
"""Operators whose traits tie all that there is to tie."""

SIZE_RULES: Table[tuple[str, str], _Rule] = Table(
    "rule of sizes",
    [
        *((("", op), rule) for op, rule in _STANDARD.items()),
        *(
            (("", op), rule)
            for operators, rule in _OF_TRAITS
            for op in sorted(operators - _STANDARD.keys())
        ),
        *((("com.microsoft", op), rule) for op, rule in _CONTRIB.items()),
    ],
)
"""By domain and operator."""
