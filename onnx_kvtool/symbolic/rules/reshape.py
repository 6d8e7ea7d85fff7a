"""Reshape, by the sizes that it asks for and by matching axes before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.dimensions import Shape, exact_quotient, quotient, shape_words, words
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Expr, coordinate, product
from onnx_kvtool.symbolic.rules.site import ElementSite, Shapes, ShapeSite, asked, changed
from onnx_kvtool.symbolic.simplification import (
    Facts,
    at_least,
    divided,
    modulo,
    substitute,
)


def reshape(site: ShapeSite) -> Shapes:
    """Reshape: what is asked for, with 0 and -1 resolved."""
    target = site.given(1)
    wanted = asked(site, target) if target is not None else site.expressions("shape") or ()
    names = "`shape`" if target is None else f"`{target.name}`"
    shape = site.knowledge.shapes.get(site.value(0))
    keep_zero = site.view.number("allowzero") != 0
    sizes: list[Expr] = []
    place: int | None = None
    certain = shape is not None
    for axis, size in enumerate(wanted):
        found = _size(site, size, axis, shape, keep_zero=keep_zero)
        if found is not None and found.number == -1:
            if place is not None:
                raise MalformedNode(
                    "reshape-sizes", f"{names} contains -1 or an unknown size twice"
                )
            place, found = axis, ONE
        if found is None:
            certain = False
            why = f"the elements of {names} are unknown, and 0 or -1 would mean another size"
            found = site.lost(axis, why)
        sizes.append(found)
    if place is not None:
        sizes[place] = _rest(site, shape, sizes, place, certain)
    elif (
        certain
        and shape is not None
        and site.knowledge.equalities.differ(product(shape), product(sizes))
    ):
        got, expected = shape_words(shape), shape_words(tuple(sizes))
        what = "another number of elements is asked for"
        site.conflict("operand-shape", 0, got, expected, what)
    return (tuple(sizes),)


def _size(
    site: ShapeSite, size: Expr | None, axis: int, shape: Shape | None, *, keep_zero: bool
) -> Expr | None:
    """Return one size of the result, -1 for the one that is left over, None if unknown."""
    if size is None:
        return None
    if size.number == 0 and not keep_zero:
        return shape[axis] if shape is not None and axis < len(shape) else None
    if size.number is not None:
        return size
    known = site.knowledge
    there, resolved = known.equalities.resolved(size), map(known.equalities.resolved, shape or ())
    if means_itself(there, axis, tuple(resolved), keep_zero=keep_zero):
        return size
    # It must not be taken to be at least 1.
    may_be_empty = known.unnamed_may_be_empty and words(there) is None
    if shape is None or may_be_empty or there in known.may_be_empty:
        return None
    if size not in known.legal and not at_least(there, ZERO):
        return None
    # It is a size of another value. Only an empty one would be read as a wish to copy.
    known.assumed.setdefault(there, site.place.of_value(site.node.outputs[0]))
    return size


def _rest(
    site: ShapeSite, shape: Shape | None, sizes: list[Expr], place: int, certain: bool
) -> Expr:
    """Return the size of the axis that takes what the others leave."""
    if shape is None:
        return site.lost(place, "the number of elements of the input is unknown")
    if not certain:
        return site.lost(place, "it depends on an unknown size")
    whole, others = product(shape), product(sizes)
    if others.number == 0:
        return site.lost(place, "-1 is undefined beside a size of 0", code="malformed")
    exact = exact_quotient(whole, others)
    if exact is not None:
        return exact
    known = site.knowledge.equalities
    return quotient(known.resolved(whole), known.resolved(others))


class _Group(NamedTuple):
    """Neighbouring axes before and after that hold the same number of elements.

    At most one of the two has more than one axis; axes of size 1 are in no group.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]


def reshape_elements(site: ElementSite) -> IndexMap | None:
    """Reshape-5/13/14/... and Flatten, where the sizes before and after can be matched."""
    (data, old), sizes = site.ranked(0), site.sizes
    before, after = product(old).number, product(sizes).number
    if before is not None and after is not None and before != after:
        raise MalformedNode("reshape-sizes", f"{counted(before, 'element')} cannot become {after}")
    groups = _groups(old, sizes)
    if groups is None or not data.parts:
        return site.opaque()
    axis = None
    if data.axis is not None:
        found = [g for g in groups if data.axis in g.old]
        if len(found) != 1 or len(found[0].old) != 1 or len(found[0].new) != 1:
            return site.opaque()
        axis = found[0].new[0]
        sizes = changed(sizes, axis, old[data.axis])  # one axis, one size
    facts = Facts(sizes)
    parts = [_moved(part, groups, old, sizes, facts) for part in data.parts]
    if axis is None:
        return site.whole(parts[0])
    return IndexMap.stacked(sizes, site.dtype, axis, parts)


def means_itself(size: Expr, axis: int, shape: Sequence[Expr], *, keep_zero: bool) -> bool:
    """Return whether a size that is computed at run time is never 0 or -1 with another meaning.

    0 copies the size of the same axis, which does no harm where that is 0, too; it fails where
    there is no such axis.
    """
    if at_least(size, ONE):
        return True
    harmless = keep_zero or axis >= len(shape) or exact_quotient(shape[axis], size) is not None
    return harmless and at_least(size, ZERO)


def _groups(old: Sequence[Expr], new: Sequence[Expr]) -> list[_Group] | None:
    """Match axes from the front; None where that fails."""
    left = [i for i, size in enumerate(old) if size != ONE]
    right = [i for i, size in enumerate(new) if size != ONE]
    groups = []
    while left or right:
        group = _first_group(old, left, new, right)
        if group is None:
            return None
        groups.append(group)
        left, right = left[len(group.old) :], right[len(group.new) :]
    return groups


def _first_group(
    old: Sequence[Expr], left: list[int], new: Sequence[Expr], right: list[int]
) -> _Group | None:
    if len(left) == 1 and len(right) == 1:
        return _Group((left[0],), (right[0],))  # the number of elements is the same
    if not left or not right:
        return None
    for count in range(1, max(len(left), len(right)) + 1):
        if count <= len(right) and product(new[i] for i in right[:count]) == old[left[0]]:
            return _Group((left[0],), tuple(right[:count]))
        if count <= len(left) and product(old[i] for i in left[:count]) == new[right[0]]:
            return _Group(tuple(left[:count]), (right[0],))
    return None


def _moved(
    part: Expr,
    groups: Sequence[_Group],
    old: Sequence[Expr],
    new: Sequence[Expr],
    facts: Facts,
) -> Expr:
    # Through numbers that are no axis before or after, so that no coordinate is taken twice.
    apart = len(old) + len(new)
    coordinates = dict.fromkeys(range(len(old)), ZERO)
    for group in groups:
        if len(group.old) == 1:
            coordinates[group.old[0]] = _joined(group.new, new)
            continue
        (target,) = group.new
        joined = _join(part, group.old, old, apart + target)
        if joined is not None:
            part = joined
            coordinates[apart + target] = coordinate(target)
        else:
            coordinates |= _parted(group.old, old, target, facts)
    return substitute(part, coordinates, facts)


def _joined(axes: Sequence[int], sizes: Sequence[Expr]) -> Expr:
    """Return the number of an element among those of some axes."""
    number = ZERO
    for axis in axes:
        number = number * sizes[axis] + coordinate(axis)
    return number


def _join(part: Expr, axes: Sequence[int], sizes: Sequence[Expr], target: int) -> Expr | None:
    """Write `part` with one coordinate, the number of an element among those of some axes."""
    found = part.split(axes[-1])
    if found is None:
        return None
    factor, _ = found
    rest = part - _joined(axes, sizes) * factor
    if rest.axes & set(axes) or factor.axes & set(axes):
        return None
    return rest + coordinate(target) * factor


def _parted(
    axes: Sequence[int], sizes: Sequence[Expr], target: int, facts: Facts
) -> dict[int, Expr]:
    """Return the coordinate along each of some axes from the number of the element."""
    result = {}
    number = coordinate(target)
    for position, axis in enumerate(reversed(axes)):
        first = position == len(axes) - 1
        result[axis] = number if first else modulo(number, sizes[axis], facts)
        number = divided(number, sizes[axis], facts)
    return result
