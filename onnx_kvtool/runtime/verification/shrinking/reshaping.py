"""How Reshape and its kin take sizes apart and put them together."""

from __future__ import annotations

import math

from onnx_kvtool.runtime.verification.shrinking.call import Call, Item
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, Size, bind, factor, pin

__all__ = ["concat", "expand", "reshape", "slice_", "split", "tile"]


def reshape(call: Call) -> list[Shape | None] | None:
    """A 0 copies a size, a number is one; sizes that are merged or split are products."""
    shape, target = call.shape(0), call.target(1)
    if shape is None or target is None or call.number("allowzero"):
        return None
    copied = [axis for axis, item in enumerate(target) if item.number == 0]
    if (copied and max(copied) >= len(shape)) or [i.number for i in target].count(-1) > 1:
        return None
    items: list[Size | None] = [
        shape[axis] if item.number == 0 else _wanted(item) for axis, item in enumerate(target)
    ]
    result = _matched(shape, items)
    numbers = {axis: result[axis] for axis, item in enumerate(target) if (item.number or 0) > 1}
    call.link_target(1, numbers)
    return [result]


def _wanted(item: Item) -> Size | None:
    """Return the size that an integer of a target asks for; None for what is left."""
    if item.size is not None:
        return item.size
    return None if item.number == -1 else bind(item.number, is_pinned=False)


def _matched(shape: Shape, items: list[Size | None]) -> Shape:
    """Tie the sizes of an array to those of the same elements in another shape.

    Args:
        shape: The sizes before.
        items: Those after; None for the one that takes what is left.
    """
    begin = _from_front(shape, items)
    end = _from_front(shape[begin[0] :][::-1], items[begin[1] :][::-1], is_reversed=True)
    before = shape[begin[0] : len(shape) - end[0]]
    after = items[begin[1] : len(items) - end[1]]
    if after == [None]:
        items[begin[1]] = _merged(before)
    elif (left := _left(before, after)) is not None:
        items[begin[1] + after.index(None)] = left
        factor(before, [size if size is not None else left for size in after])
    else:
        pin(before, [size for size in after if size is not None])
    return [size if size is not None else bind(None) for size in items]


def _left(before: Shape, after: list[Size | None]) -> Size | None:
    """Return a size for what is left beside known ones; None if it is not known."""
    numbers = [size.number for size in before]
    others = [size.number for size in after if size is not None]
    if len(others) == len(after) or None in numbers or None in others:
        return None
    whole, rest = (math.prod(number or 0 for number in known) for known in (numbers, others))
    return bind(whole // rest, is_pinned=False) if whole and rest and whole % rest == 0 else None


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
        if one.number is None or other.number is None:
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
    i = j = 1
    a, b = shape[0].number or 0, (items[0].number or 0) if items[0] else 0
    while a != b:
        if a < b:
            if i == len(shape) or (number := shape[i].number) is None:
                return None
            a, i = a * number, i + 1
        else:
            item = items[j] if j < len(items) else None
            if item is None or item.number is None:
                return None
            b, j = b * item.number, j + 1
    return i, j


def _merged(sizes: Shape) -> Size:
    """Return the product of sizes; it stays as it is if one of them has no number."""
    if len(sizes) == 1:
        return sizes[0]
    numbers = [size.number for size in sizes]
    if None in numbers:
        pin(sizes)
        return bind(None)
    result = bind(math.prod(number or 0 for number in numbers), is_pinned=False)
    factor([result], sizes)
    return result


def _repeated(count: Size, size: Size) -> Size:
    """Return the size of something that stands `count` times in a row."""
    return _merged([count, size])


def tile(call: Call) -> list[Shape | None] | None:
    """A size times a constant is a product."""
    shape, repeats = call.shape(0), call.constant(1)
    if (
        shape is None
        or repeats is None
        or len(repeats) != len(shape)
        or min(repeats, default=1) < 1
    ):
        return None
    counts = {a: bind(n, is_pinned=False) for a, n in enumerate(repeats) if n > 1}
    call.link(1, counts)
    return [[_repeated(counts[a], size) if a in counts else size for a, size in enumerate(shape)]]


def expand(call: Call) -> list[Shape | None] | None:
    """What is 1 takes a number of the target; the rest stays."""
    shape, target = call.shape(0), call.target(1)
    if shape is None or target is None:
        return None
    rank = max(len(shape), len(target))
    old: list[Size | None] = [*[None] * (rank - len(shape)), *shape]
    result: Shape = []
    numbers: dict[int, Size] = {}
    for place, size in enumerate(old):
        element = place - (rank - len(target))
        item = target[element] if element >= 0 else Item(1)
        new = item.size or bind(item.number, is_pinned=False)
        if new.is_one and size is not None:
            result.append(size)
            continue
        if size is not None and not size.is_one:
            size.join(new)
        if (item.number or 0) > 1:
            numbers[element] = new
        result.append(new)
    call.link_target(1, numbers)
    return [result]


def concat(call: Call) -> list[Shape | None] | None:
    """The same size several times is a product; other parts stay as they are."""
    parts = [shape for shape in call.shapes if shape is not None]
    if not parts or len(parts) < len(call.shapes) or len({len(part) for part in parts}) != 1:
        return None
    axis = call.axis(parts[0])
    if axis is None:
        return None
    for part in parts[1:]:
        for place, size in enumerate(part):
            if place != axis:
                parts[0][place].join(size)
    joined = [part[axis] for part in parts]
    if len({id(size.root()) for size in joined}) == 1 and joined[0].number is not None:
        whole = _repeated(bind(len(joined)), joined[0])
    else:
        pin(joined)
        numbers = [size.number for size in joined]
        whole = bind(None if None in numbers else sum(number or 0 for number in numbers))
    return [[whole if place == axis else size for place, size in enumerate(parts[0])]]


def split(call: Call) -> list[Shape | None] | None:
    """Equal parts are a size of their own; others stay as they are."""
    shape = call.shape(0)
    axis = call.axis(shape)
    if shape is None or axis is None:
        return None
    whole, count = shape[axis], len(call.node.output)
    given = call.numbers("split")
    sizes = given if given is not None else call.constant(1)
    is_equal = (sizes is None and not call.has(1)) or (sizes is not None and len(set(sizes)) == 1)
    if whole.number is None or not is_equal or whole.number % count:
        pin([whole])
        numbers: list[int | None] = list(sizes) if sizes is not None else [None] * count
        return [[*shape[:axis], bind(number), *shape[axis + 1 :]] for number in numbers]
    part = bind(whole.number // count, is_pinned=False)
    factor([whole], [bind(count), part])
    for element in range(count):
        if given is not None:
            call.link_attribute("split", part, element)
    if given is None and sizes is not None:
        call.link(1, dict.fromkeys(range(count), part))
    return [[*shape[:axis], part, *shape[axis + 1 :]]] * count


def slice_(call: Call) -> list[Shape | None] | None:
    """One of two halves is a size of its own, and so is each other element; else all is kept."""
    shape, axes = call.shape(0), call.constant(3)
    starts, ends = call.constant(1), call.constant(2)
    if shape is None or axes is None or not all(-len(shape) <= a < len(shape) for a in axes):
        return None
    steps = call.constant(4) if call.has(4) else [1] * len(axes)
    result = list(shape)
    linked: tuple[dict[int, Size], dict[int, Size]] = ({}, {})
    for element, axis in enumerate(axes):
        part = None
        if starts is not None and ends is not None and steps is not None:
            cut = starts[element], ends[element], steps[element]
            part = _part(result[axis], cut, element, linked)
        if part is None:
            pin([result[axis]])
        result[axis] = bind(None) if part is None else part
    call.link(1, linked[0])
    call.link(2, linked[1])
    return [result]


def _part(
    size: Size,
    cut: tuple[int, int, int],
    element: int,
    linked: tuple[dict[int, Size], dict[int, Size]],
) -> Size | None:
    """Return the size of one of two halves, or of each other element; None for anything else."""
    whole, (start, end, step) = size.number, cut
    if whole is None or whole % 2 or size.is_one:
        return None
    half = whole // 2
    if (start, min(end, whole), step) not in (
        (0, half, 1),
        (half, whole, 1),
        (0, whole, 2),
        (1, whole, 2),
    ):
        return None
    part = bind(half, is_pinned=False)
    factor([size], [bind(2), part] if step == 1 else [part, bind(2)])
    if step == 1 and start == half:
        linked[0][element] = part
    if end == half:
        linked[1][element] = part
    elif end == whole:
        linked[1][element] = size
    return part
