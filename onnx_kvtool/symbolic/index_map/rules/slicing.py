"""Operators that take every element of a part of an axis: Slice and Split."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.ops.view import MalformedNode, counted_axes, counted_axis
from onnx_kvtool.symbolic.bounds import Facts, at_least
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer
from onnx_kvtool.symbolic.forms import choose, divided, is_less, largest, smallest
from onnx_kvtool.symbolic.index_map.description import IndexMap
from onnx_kvtool.symbolic.index_map.site import Site
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["Cut", "cut_along", "slice_", "split"]

_ZERO = integer(0)
_HEAVIEST_SIZE = 24
"""Largest weight of a size that is kept as an expression."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a slice takes along one axis: `offset + step * i`, `length` of them."""

    offset: Expr
    step: int
    length: Expr | None


def slice_(site: Site) -> IndexMap | None:
    """Slice-1/10/11/13; starts and ends may be computed, axes and steps are constants."""
    data = site.input("data")
    if data is None or data.shape is None:
        return None
    starts, ends = _expressions(site, "starts"), _expressions(site, "ends")
    if starts is None or ends is None or len(starts) != len(ends):
        return None
    axes = site.integers("axes") if site.has("axes") else tuple(range(len(starts)))
    steps = site.integers("steps") if site.has("steps") else (1,) * len(starts)
    if axes is None or steps is None or not len(axes) == len(steps) == len(starts):
        return None
    places = counted_axes(axes, len(data.shape))
    cuts = {}
    for place, start, end, step in zip(places, starts, ends, steps, strict=True):
        cut = cut_along(data.shape[place], start, end, step)
        if cut is None:
            return None
        cuts[place] = cut
    return _cut_out(site, data, cuts)


def _cut_out(site: Site, data: IndexMap, cuts: dict[int, Cut]) -> IndexMap:
    facts, parts, axis = Facts(site.shape), data.parts, data.axis
    if axis is not None and axis in cuts:
        cut = cuts.pop(axis)
        offset, length = cut.offset.number, None if cut.length is None else cut.length.number
        if offset is None or length is None:
            return site.opaque()
        parts = tuple(parts[offset + cut.step * i] for i in range(length))
        if not parts:
            return site.whole(_ZERO)
    moved = {a: cut.offset + coordinate(a) * cut.step for a, cut in cuts.items()}
    return site.like(axis, tuple(substitute(part, moved, facts) for part in parts))


def _expressions(site: Site, name: str) -> tuple[Expr, ...] | None:
    if name in site.view.facts.attributes:
        numbers = site.integers(name)
        return None if numbers is None else tuple(integer(n) for n in numbers)
    given = site.input(name)
    return None if given is None else given.vector()


def cut_along(size: Expr, start: Expr, end: Expr, step: int) -> Cut | None:
    """Return what a slice of an axis of `size` takes; None where that is not known.

    Bounds are clamped as the text of Slice says: for a negative step the start to 0 to size - 1 and
    the end to -1 to size - 1, so that a start before the first element takes the first one.
    """
    facts = Facts()
    if step == 0:
        return None
    low = 0 if step > 0 else -1
    offset = _clamped(start, size, 0, low, facts)
    stop = _clamped(end, size, low, low, facts)
    way = stop - offset if step > 0 else offset - stop
    reach = largest((way, _ZERO), facts)
    length = divided(reach + (abs(step) - 1), integer(abs(step)), facts)
    known = length if length.weight <= _HEAVIEST_SIZE else None
    if step > 0:
        # Behind the end there is no element, so that the start needs no upper limit.
        front = largest((start + size, _ZERO), facts)
        offset = choose(is_less(start, _ZERO, facts), front, start, facts)
    elif start.number == -1 or at_least(start, size, facts):
        offset = size - 1  # an empty axis has no element to begin with
    return Cut(offset, step, known)


def _clamped(bound: Expr, size: Expr, low: int, shift: int, facts: Facts) -> Expr:
    """Return a bound counted from the front, at least `low` and at most `size + shift`."""
    front = largest((bound + size, integer(low)), facts)
    if low > shift:  # they cross in an empty axis
        front = smallest((front, size + shift), facts)
    behind = smallest((bound, size + shift), facts)
    return choose(is_less(bound, _ZERO, facts), front, behind, facts)


def split(site: Site) -> IndexMap | None:
    """Split-2/11/13/18; sizes are constants, or the axis has a fixed size."""
    data = site.inputs[0]
    if data.shape is None:
        return None
    axis = counted_axis(site.view.integer("axis"), len(data.shape))
    sizes = site.integers("split")
    if sizes is None:
        count, n = len(site.node.outputs), data.shape[axis].number
        if site.has("split") or n is None:
            return None
        chunk = -(-n // count)
        sizes = tuple(min(chunk, max(0, n - chunk * i)) for i in range(count))
    if len(sizes) != len(site.node.outputs):
        raise MalformedNode("split-sizes", f"`split` is {list(sizes)}, which is not the whole axis")
    place = site.output.index() or 0
    cut = Cut(integer(sum(sizes[:place])), 1, integer(sizes[place]))
    return _cut_out(site, data, {axis: cut})
