"""Slice, Shape and the operators that count elements."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.atoms import Element, Extent, Largest
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, integer, variable
from onnx_kvtool.symbolic.index_map.rules.slicing import cut_along
from onnx_kvtool.symbolic.rules.movement import placed
from onnx_kvtool.symbolic.rules.site import Site, Unknown
from onnx_kvtool.symbolic.sizes import Shape
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["non_zero", "scalar", "shape_vector", "slice_"]

_FACTS = Facts()


def slice_(site: Site) -> Sequence[Shape | Unknown]:
    """Slice: starts and ends that lie outside are clamped, so that a length is a minimum."""
    shape = site.shape(0)
    is_old = "starts" in site.view.facts.attributes
    starts, ends = _bounds(site, "starts", is_old), _bounds(site, "ends", is_old)
    try:
        axes, steps = site.listed("axes"), None if is_old else site.listed("steps")
    except Unknown as error:
        return (tuple(site.lost(i, error.why) for i in range(len(shape))),)
    count = _count(site, starts, ends, axes)
    if axes is None:
        axes = tuple(range(count))
    result = list(shape)
    for i, axis in enumerate(axes):
        place = placed(axis, len(shape))
        result[place] = _length(site, place, starts, ends, steps, i)
    return (tuple(result),)


def _bounds(site: Site, name: str, is_old: bool) -> tuple[Expr, ...] | None:
    if is_old:
        return tuple(integer(n) for n in site.listed(name) or ())
    value = site.view.required(name)
    return site.elements(value)


def _count(
    site: Site,
    starts: tuple[Expr, ...] | None,
    ends: tuple[Expr, ...] | None,
    axes: tuple[int, ...] | None,
) -> int:
    """Return how many axes are cut.

    Raises:
        Unknown: If that is not known.
    """
    for given in (starts, ends, axes):
        if given is not None:
            return len(given)
    for name in ("starts", "ends"):
        length = site.content(site.view.required(name)).shape
        if length is not None and len(length) == 1 and length[0].number is not None:
            return length[0].number
    raise Unknown("data-dependent", "how many axes are cut is not known")


def _length(
    site: Site,
    axis: int,
    starts: tuple[Expr, ...] | None,
    ends: tuple[Expr, ...] | None,
    steps: tuple[int, ...] | None,
    i: int,
) -> Expr:
    for name, given in (("starts", starts), ("ends", ends)):
        if given is None or i >= len(given):
            return site.lost(axis, site.cause_of(site.view.required(name)))
    assert starts is not None and ends is not None
    step = 1 if steps is None or i >= len(steps) else steps[i]
    size = site.shape(0)[axis]
    found = _cut(site, size, axis, starts[i], ends[i], step)
    if found is not None:
        return found
    for name, one in (("starts", starts[i]), ("ends", ends[i])):
        if any(isinstance(atom, Element) for atom in one.atoms()):
            return site.lost(axis, site.cause_of(site.view.required(name)))
    why = "no expression says how much is cut off"
    return site.lost(axis, why, code="no-expression")


def _cut(site: Site, size: Expr, axis: int, start: Expr, end: Expr, step: int) -> Expr | None:
    """Return how many elements are taken of an axis of `size`; None where no expression says it."""
    if size.number is not None or start.number is None or end.number is None:
        found = cut_along(size, start, end, step)
        return None if found is None else found.length
    # A size is not negative, which its expression need not show.
    atom = Extent(site.value(0), integer(axis))
    found = cut_along(variable(atom), start, end, step)
    if found is None or found.length is None:
        return None
    length = substitute(found.length, {}, _FACTS, {atom: size})
    largest = length.atom
    if isinstance(largest, Largest) and integer(0) in largest.of and len(largest.of) == 2:
        (other,) = largest.of - {integer(0)}
        return other if other in site.knowledge.legal else length
    return length


def shape_vector(site: Site) -> Sequence[Shape | Unknown]:
    """Shape: one number per axis from `start` to `end`."""
    value = site.value(0)
    rank = site.rank_of(value)
    if rank is None:
        return ((site.lost(0, f"the rank of `{value.name}` is not known", code="unknown-rank"),),)
    facts = site.view.facts
    start = site.view.integer("start") if "start" in facts.attributes else 0
    end = site.view.attribute("end") if "end" in facts.attributes else None
    picked = range(rank)[start : end if isinstance(end, int) else None]
    return ((integer(len(picked)),),)


def scalar(site: Site) -> Sequence[Shape | Unknown]:
    """Size and whatever else gives a scalar."""
    return ((),)


def non_zero(site: Site) -> Sequence[Shape | Unknown]:
    """NonZero: a column for each element that is not zero."""
    value = site.value(0)
    rank = len(site.shape(0))
    return ((integer(rank), site.lost(1, f"it counts elements of `{value.name}`")),)
