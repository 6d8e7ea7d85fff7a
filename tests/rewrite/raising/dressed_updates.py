"""Random graphs whose update is reshaped, expanded and turned about before it is written."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from onnx import helper

from tests.rewrite.raising.random_updates import Builder, Drawn, draw_update

__all__ = ["draw_dressed_update"]


def draw_dressed_update(data: st.DataObject) -> Drawn:
    """Draw a model with one update of `cache` by a value that is made of `src`."""
    return draw_update(data, _dress)


def _dress(b: Builder, update: list[Any], cache: list[Any]) -> list[Any]:
    """Make `upd` of `src`, and return the dimensions of that."""
    source = list(update)
    batch = cache.index("B")
    if source[batch] == "B":
        source[batch] = b.pick("B", "B", 1)
    value = "src"
    for _ in range(b.pick(1, 2, 3, 4)):
        value = b.pick(*_STEPS)(b, value, source, cache)
    b.nodes.append(helper.make_node("Identity", [value], ["upd"]))
    return source


def _turn(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    """Transpose there and back, or somewhere else."""
    places = range(len(source))
    perm = b.data.draw(st.permutations(places))
    back = b.pick([perm.index(k) for k in places], b.data.draw(st.permutations(places)))
    return b.op("Transpose", b.op("Transpose", value, perm=perm), perm=back)


def _axis_comes_and_goes(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    axis = b.pick(*range(len(source) + 1))
    wide = b.op("Unsqueeze", value, b.const([axis]))
    return b.op("Squeeze", wide, b.const([b.pick(axis, axis, (axis + 1) % len(source))]))


def _to_the_cache(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    """Expand or reshape to the sizes of the cache, and as many rows as there are."""
    sizes = [
        b.op("Shape", value if d == "S" else "cache", start=k, end=k + 1)
        for k, d in enumerate(cache)
    ]
    return b.op(b.pick("Expand", "Expand", "Reshape"), value, b.op("Concat", *sizes, axis=0))


def _to_its_own_shape(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    return b.op(b.pick("Expand", "Reshape"), value, b.op("Shape", value))


def _to_numbers(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    """Expand to ones, perhaps to a batch of two."""
    ones = [1] * len(source)
    return b.op("Expand", value, b.const(b.pick([1], ones, [2, *ones[1:]])))


def _by_what_is_left(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    free = b.pick(*range(len(source)))
    return b.op("Reshape", value, b.const([-1 if k == free else 0 for k in range(len(source))]))


def _flat_and_back(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    shape = b.op("Shape", value)
    if b.pick(True, False):
        swapped = [1, 0, *range(2, len(source))]
        shape = b.op("Gather", shape, b.const(swapped))
        value = b.op("Reshape", value, shape)
        shape = b.op("Gather", shape, b.const(swapped))
    return b.op("Reshape", b.op("Reshape", value, b.const([-1])), shape)


def _sliced(b: Builder, value: str, source: list[Any], cache: list[Any]) -> str:
    """All of an axis, its first two, or all of it from behind."""
    axis = b.const([b.pick(*range(len(source)))])
    start, end, step = b.pick((0, 2**62, 1), (0, 2, 1), (-1, -(2**62), -1))
    return b.op("Slice", value, b.const([start]), b.const([end]), axis, b.const([step]))


_STEPS = (
    _turn,
    _axis_comes_and_goes,
    _to_the_cache,
    _to_its_own_shape,
    _to_numbers,
    _by_what_is_left,
    _flat_and_back,
    _sliced,
)
