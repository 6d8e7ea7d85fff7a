"""Updates of a cache, as exporters write them and as they do not, for random graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.fuzz.graphs import Growth

__all__ = ["grow_cache"]

B, H, S, D = 2, 3, 5, 4


def grow_cache(growth: Growth) -> None:
    """Add a cache, an update, a start that fits, and nodes that write the one into the other.

    The cache is float32, (B, H, S, D) or (B, S, H, D). One in three times one of the numbers is
    not what an update of a cache has, so that the nodes are something else.
    """
    odd = growth.rng.random() < 1 / 3
    growth.rng.choice(_FORMS)(growth, odd)


def _elements(growth: Growth, odd: bool) -> None:
    """ScatterElements, one start for each sequence."""
    length = growth.rng.choice((1, 2))
    cache, update = _floats(growth, (B, H, S, D), (B, H, length, D))
    starts = _unsqueezed(growth, _start(growth, (B,), length), [1, 2, 3])
    rows = growth.constant(_rows(growth, length, odd).reshape(1, 1, length, 1))
    index = growth.op("Expand", growth.op("Add", starts, rows), growth.shape((B, H, length, D)))
    growth.op("ScatterElements", cache, index, update, axis=2)


def _tuples(growth: Growth, odd: bool) -> None:
    """ScatterND of (sequence, position), one start for each sequence."""
    length = growth.rng.choice((1, 2))
    cache, update = _floats(growth, (B, S, H, D), (B, length, H, D))
    starts = _unsqueezed(growth, _start(growth, (B,), length), [1])
    places = growth.op("Add", starts, growth.constant(_rows(growth, length, odd)[None]))
    batch = growth.constant(np.arange(B).reshape(B, 1)[:: -1 if odd else 1])
    shape = growth.shape((B, length))
    parts = [growth.op("Expand", part, shape) for part in (batch, places)]
    pairs = [_unsqueezed(growth, part, [2]) for part in parts]
    growth.op("ScatterND", cache, growth.op("Concat", *pairs, axis=2), update)


def _shared(growth: Growth, odd: bool) -> None:
    """ScatterND between Transposes, one start for all."""
    length = growth.rng.choice((1, 2))
    cache, update = _floats(growth, (B, H, S, D), (B, H, length, D))
    rows = growth.constant(_rows(growth, length, odd))
    places = growth.op("Add", rows, _start(growth, (1,), length))
    index = _unsqueezed(growth, places, [1])
    first = [growth.op("Transpose", v, perm=[2, 0, 1, 3]) for v in (cache, update)]
    written = growth.op("ScatterND", first[0], index, first[1])
    growth.op("Transpose", written, perm=[1, 2, 0, 3])


def _one_hot(growth: Growth, odd: bool) -> None:
    """Where, by a mask of one position."""
    cache, update = _floats(growth, (B, H, S, D), (B, H, 1, D))
    starts = _unsqueezed(growth, _start(growth, (B,), 1), [1])
    places = growth.constant(np.arange(S)[None, :: -1 if odd else 1])
    mask = _unsqueezed(growth, growth.op("Equal", starts, places), [1, 3])
    growth.op("Where", mask, update, cache)


def _concat(growth: Growth, odd: bool) -> None:
    """Concat of what stands before and behind the new rows."""
    length = growth.rng.choice((1, 2))
    cache, update = _floats(growth, (B, H, S, D), (B, H, length, D))
    start = _start(growth, (1,), length)
    axis = growth.constant(np.array([2]))
    head = growth.op("Slice", cache, growth.constant(np.array([0])), start, axis)
    skipped = growth.rng.choice((0, length + 1)) if odd else length
    behind = growth.op("Add", start, growth.constant(np.array([skipped])))
    tail = growth.op("Slice", cache, behind, growth.constant(np.array([S])), axis)
    growth.op("Concat", head, update, tail, axis=2)


_FORMS: tuple[Callable[[Growth, bool], None], ...] = (
    _elements,
    _tuples,
    _shared,
    _one_hot,
    _concat,
)


def _floats(growth: Growth, *shapes: tuple[int, ...]) -> list[str]:
    names = ("cache", "update")
    return [
        growth.fed(name, growth.array(np.dtype(np.float32), shape))
        for name, shape in zip(names, shapes, strict=True)
    ]


def _start(growth: Growth, shape: tuple[int, ...], length: int) -> str:
    numbers = [growth.rng.randint(0, S - length) for _ in range(shape[0])]
    return growth.fed("start", np.array(numbers, np.int64))


def _rows(growth: Growth, length: int, odd: bool) -> np.ndarray[Any, Any]:
    """Return 0, 1, ...; or the same from behind, or twice the first."""
    rows = np.arange(length)
    return growth.rng.choice((rows[::-1], rows * 0)) if odd else rows


def _unsqueezed(growth: Growth, value: str, axes: list[int]) -> str:
    if growth.opset < 13:
        return growth.op("Unsqueeze", value, axes=axes)
    return growth.op("Unsqueeze", value, growth.constant(np.array(axes)))
