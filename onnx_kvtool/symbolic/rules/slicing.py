"""Slice and Split, which take every element of a part of an axis."""

from __future__ import annotations

from typing import NamedTuple

from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.view import MalformedNode, counted_axes, counted_axis
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.expressions import (
    ZERO,
    Element,
    Expr,
    Exprs,
    Extent,
    Largest,
    coordinate,
    integer,
    variable,
)
from onnx_kvtool.symbolic.rules.site import ElementSite, Shapes, ShapeSite, Unknown, changed, placed
from onnx_kvtool.symbolic.simplification import (
    Facts,
    at_least,
    choose,
    divided,
    is_less,
    largest,
    smallest,
    substitute,
)

_FIRST_UNEQUAL = 18
"""From this opset on the last part of a Split may be smaller than the others."""

_HEAVIEST_SIZE = 24
"""Largest weight of a size that is kept as an expression."""


def slice_(site: ShapeSite) -> Shapes:
    """Slice: starts and ends that lie outside are clamped, so that a length is a minimum."""
    shape = site.shape(0)
    starts, ends = site.expressions("starts"), site.expressions("ends")
    try:
        axes, steps = site.listed("axes"), site.listed("steps") or ()
    except Unknown as error:
        return (tuple(site.lost(i, error.why) for i in range(len(shape))),)
    result = list(shape)
    for i, axis in enumerate(range(_count(site, starts, ends)) if axes is None else axes):
        place = placed(axis, len(shape))
        start, end = (None if one is None or i >= len(one) else one[i] for one in (starts, ends))
        result[place] = _length(site, place, start, end, steps[i] if i < len(steps) else 1)
    return (tuple(result),)


def _count(site: ShapeSite, starts: Exprs | None, ends: Exprs | None) -> int:
    """Return how many axes are cut. Raise Unknown if that is unknown."""
    for name, given in (("starts", starts), ("ends", ends)):
        if given is not None:
            return len(given)
        length = site.content(site.view.required(name)).shape
        if length is not None and len(length) == 1 and length[0].number is not None:
            return length[0].number
    raise Unknown("data-dependent", "the number of sliced axes is unknown")


def _length(site: ShapeSite, axis: int, start: Expr | None, end: Expr | None, step: int) -> Expr:
    within = site.knowledge.within
    if start is not None and end is not None:
        found = _cut(site, axis, within(start), within(end), step)
        if found is not None:
            return found
    for name, one in (("starts", start), ("ends", end)):
        if one is None or any(isinstance(atom, Element) for atom in one.atoms()):
            return site.lost(axis, site.cause_of(site.view.required(name)))
    return site.lost(axis, "no expression says how much is cut off", code="no-expression")


def _cut(site: ShapeSite, axis: int, start: Expr, end: Expr, step: int) -> Expr | None:
    """Return how many elements are taken of an axis; None where no expression says it."""
    size = site.shape(0)[axis]
    if size.number is not None or start.number is None or end.number is None:
        found = cut_along(size, start, end, step, site.knowledge.bounds)
        return None if found is None else found.length
    # A size is not negative, which its expression need not show.
    atom = Extent(site.value(0), integer(axis))
    found = cut_along(variable(atom), start, end, step)
    if found is None or found.length is None:
        return None
    length = substitute(found.length, {}, Facts(), {atom: size})
    sides = length.atom.of if isinstance(length.atom, Largest) else frozenset()
    legal = site.knowledge.legal & sides
    return next(iter(legal)) if len(sides) == 2 and ZERO in sides and legal else length


def split(site: ShapeSite) -> Shapes:
    """Split; parts of one size where `split` is absent, the last one perhaps smaller."""
    shape = site.shape(0)
    axis = placed(site.view.integer("axis"), len(shape))
    count = len(site.node.outputs)
    if (declared := site.view.number("num_outputs", count)) != count:
        raise Unknown("malformed", f"`num_outputs` is {declared} with {counted(count, 'output')}")
    try:
        sizes = site.listed("split")
    except Unknown as error:
        places = range(count)
        return [changed(shape, axis, site.lost(axis, error.why, output=i)) for i in places]
    if sizes is not None:
        if len(sizes) < count:
            raise Unknown(
                "malformed", f"`split` has {counted(len(sizes), 'number')} for more outputs"
            )
        site.same(integer(sum(sizes)), shape[axis], 0, axis, "sum of `split`")
        parts = [integer(n) for n in sizes]
    elif site.opset < _FIRST_UNEQUAL:
        parts = [divided(shape[axis], integer(count))] * count
    else:
        chunk = divided(shape[axis] + (count - 1), integer(count))
        rest = [largest((shape[axis] - chunk * i, ZERO)) for i in range(count)]
        parts = [smallest((chunk, left)) for left in rest]
    return [changed(shape, axis, part) for part in parts]


class Cut(NamedTuple):
    """What a slice takes along one axis: `offset + step * i`, `length` of them."""

    offset: Expr
    step: int
    length: Expr | None


def slice_elements(site: ElementSite) -> IndexMap | None:
    """Slice-1/10/11/13; starts and ends may be computed, axes and steps are constants."""
    data, shape = site.ranked(0)
    starts, ends = site.expressions("starts"), site.expressions("ends")
    if starts is None or ends is None or len(starts) != len(ends):
        return None
    axes, steps = site.listed("axes"), site.listed("steps")
    places = counted_axes(range(len(starts)) if axes is None else axes, len(shape))
    steps = (1,) * len(starts) if steps is None else steps
    if not len(places) == len(steps) == len(starts):
        return None
    cuts = {}
    for place, start, end, step in zip(places, starts, ends, steps, strict=True):
        cut = cut_along(shape[place], start, end, step)
        if cut is None:
            return None
        cuts[place] = cut
    return _cut_out(site, data, cuts)


def _cut_out(site: ElementSite, data: IndexMap, cuts: dict[int, Cut]) -> IndexMap:
    parts, axis = data.parts, data.axis
    if axis is not None and axis in cuts:
        cut = cuts.pop(axis)
        offset, length = cut.offset.number, None if cut.length is None else cut.length.number
        if offset is None or length is None:
            return site.opaque()
        parts = tuple(parts[offset + cut.step * i] for i in range(length))
        if not parts:
            return site.whole(ZERO)
    moved = {a: cut.offset + coordinate(a) * cut.step for a, cut in cuts.items()}
    return site.moved(axis, parts, moved)


def cut_along(
    size: Expr, start: Expr, end: Expr, step: int, facts: Facts | None = None
) -> Cut | None:
    """Return the range that a slice selects on an axis of `size`; None if unknown.

    Bounds are clamped as the text of Slice says: for a negative step the start to 0 to size - 1 and
    the end to -1 to size - 1, so that a start before the first element takes the first one.
    """
    if step == 0:
        return None
    facts = facts or Facts()  # not a common one, which remembers every model
    low = 0 if step > 0 else -1
    offset = _clamped(start, size, 0, low, facts)
    stop = _clamped(end, size, low, low, facts)
    way = stop - offset if step > 0 else offset - stop
    reach = largest((way, ZERO), facts)
    length = divided(reach + (abs(step) - 1), integer(abs(step)), facts)
    known = length if length.weight <= _HEAVIEST_SIZE else None
    if step > 0:
        # Behind the end there is no element, so that the start needs no upper limit.
        front = largest((start + size, ZERO), facts)
        offset = choose(is_less(start, ZERO, facts), front, start, facts)
    elif start.number == -1 or at_least(start, size, facts):
        offset = size - 1  # an empty axis has no element to begin with
    return Cut(offset, step, known)


def _clamped(bound: Expr, size: Expr, low: int, shift: int, facts: Facts) -> Expr:
    """Return a bound counted from the front, at least `low` and at most `size + shift`."""
    front = largest((bound + size, integer(low)), facts)
    if low > shift:  # they cross in an empty axis
        front = smallest((front, size + shift), facts)
    behind = smallest((bound, size + shift), facts)
    return choose(is_less(bound, ZERO, facts), front, behind, facts)


def split_elements(site: ElementSite) -> IndexMap | None:
    """Split-2/11/13/18; sizes are constants, or the axis has a fixed size."""
    data, shape = site.ranked(0)
    axis = counted_axis(site.view.integer("axis"), len(shape))
    sizes = site.listed("split")
    if sizes is None:
        count, n = len(site.node.outputs), shape[axis].number
        if n is None:
            return None
        chunk = -(-n // count)
        sizes = tuple(min(chunk, max(0, n - chunk * i)) for i in range(count))
    if len(sizes) != len(site.node.outputs):
        raise MalformedNode("split-sizes", f"`split` is {list(sizes)}, which is not the whole axis")
    cut = Cut(integer(sum(sizes[: site.output])), 1, integer(sizes[site.output]))
    return _cut_out(site, data, {axis: cut})
