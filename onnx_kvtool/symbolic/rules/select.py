"""Operators that pick elements by number, join them, replace them, and add them up."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.ops.element_type import SIZE_TYPES
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import ZERO, Expr, coordinate, total
from onnx_kvtool.symbolic.forms import choose, is_less
from onnx_kvtool.symbolic.index_map import MOST_PARTS, IndexMap
from onnx_kvtool.symbolic.rules.element_site import ElementSite
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, placed
from onnx_kvtool.symbolic.sizes import Shape, shape_words
from onnx_kvtool.symbolic.substitute import substitute

__all__ = [
    "concat",
    "concat_elements",
    "cumulative_sum_elements",
    "gather",
    "gather_elements",
    "gather_nd",
    "gather_nd_elements",
    "scattered_elements",
]


def concat(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Concat: the sum along `axis`; all other sizes are shared."""
    shapes = [site.shape(i) for i in range(len(site.node.inputs))]
    if not shapes:
        raise Unknown("malformed", "`Concat` has no inputs")
    first = shapes[0]
    axis = placed(site.view.integer("axis"), len(first))
    result = list(first)
    for index, shape in enumerate(shapes[1:], 1):
        if len(shape) != len(first):
            site.conflict("operand-shape", index, shape_words(shape), f"rank {len(first)}", "rank")
            raise Unknown("conflict", "the inputs of `Concat` differ in rank")
        for i, size in enumerate(shape):
            if i != axis:
                result[i] = site.same(result[i], size, index, i, "size")
    result[axis] = total(shape[axis] for shape in shapes)
    return (tuple(result),)


def gather(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Gather: the axis gives way to the axes of the indices."""
    shape, indices = site.shape(0), site.shape(1)
    axis = placed(site.view.integer("axis"), len(shape))
    return ((*shape[:axis], *indices, *shape[axis + 1 :]),)


def gather_nd(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GatherND: the last axis of the indices addresses as many axes of the data as it is long."""
    shape, indices = site.shape(0), site.shape(1)
    facts = site.view.facts
    batch = site.view.integer("batch_dims") if "batch_dims" in facts.attributes else 0
    taken = indices[-1].number if indices else None
    if taken is None:
        raise Unknown("unknown-rank", "the last axis of the indices has no number")
    return ((*indices[:-1], *shape[batch + taken :]),)


def gather_elements(site: ElementSite) -> IndexMap | None:
    """Gather-11/13; an index may count from the end, and is taken to be in range."""
    data, indices = site.input("data"), site.input("indices")
    if data is None or indices is None or data.shape is None or indices.shape is None:
        return None
    axis = counted_axis(site.view.integer("axis"), len(data.shape))
    rank = len(indices.shape)
    if not data.parts or not indices.parts:
        return site.opaque()
    facts = Facts(site.shape)
    behind = {i: coordinate(i + rank - 1) for i in range(axis + 1, len(data.shape))}

    def pick(part: Expr, index: Expr) -> Expr:
        row = substitute(index, {i: coordinate(i + axis) for i in range(rank)}, facts)
        row = choose(is_less(row, ZERO, facts), row + size, row, facts)
        return substitute(part, {**behind, axis: row}, facts)

    size = data.shape[axis]
    if data.axis == axis:
        return _picked(site, data, indices, axis)
    if indices.axis is None:
        parts = [pick(part, indices.parts[0]) for part in data.parts]
        if data.axis is None:
            return site.whole(parts[0])
        return site.stacked(data.axis + (rank - 1) * (data.axis > axis), parts)
    if data.axis is not None:
        return site.opaque()
    parts = [pick(data.parts[0], index) for index in indices.parts]
    return site.stacked(indices.axis + axis, parts)


def gather_nd_elements(site: ElementSite) -> IndexMap | None:
    """GatherND-11/12/13 without batch axes; an index may count from the end, and is in range."""
    data, indices = site.input("data"), site.input("indices")
    if data is None or indices is None or data.shape is None or indices.shape is None:
        return None
    rank = len(indices.shape)
    taken = indices.along(rank - 1) if rank else None
    element = data.element
    if taken is None or element is None or site.number("batch_dims", 0) != 0:
        return site.opaque()
    if len(taken) > len(data.shape):
        return None
    facts = Facts(site.shape)
    places = {i: coordinate(i - len(taken) + rank - 1) for i in range(len(taken), len(data.shape))}
    for axis, index in enumerate(taken):
        size = data.shape[axis]
        places[axis] = choose(is_less(index, ZERO, facts), index + size, index, facts)
    return site.whole(substitute(element, places, facts))


def _picked(site: ElementSite, data: IndexMap, indices: IndexMap, axis: int) -> IndexMap:
    """Gather among the parts of `data`, at constant places."""
    chosen = indices.parts if indices.shape == () else indices.vector() or ()
    places = [index.number for index in chosen]
    size, rank = len(data.parts), len(indices.shape or ())
    # Coordinates behind the axis move by the rank of the indices, less the axis itself.
    behind = {i: coordinate(i + rank - 1) for i in range(axis + 1, len(data.shape or ()))}
    facts, parts = Facts(site.shape), []
    for place in places:
        if place is None or not -size <= place < size:
            return site.opaque()
        parts.append(substitute(data.parts[place], behind, facts))
    if not parts:
        return site.opaque()
    return site.whole(parts[0]) if rank == 0 else site.stacked(axis, parts)


def concat_elements(site: ElementSite) -> IndexMap | None:
    """Concat-4/11/13 of pieces of fixed sizes that are `MOST_PARTS` in all at most."""
    pieces = site.inputs
    if any(piece.shape is None for piece in pieces):
        return None
    if len(pieces) == 1:
        return site.like(pieces[0].axis, pieces[0].parts)
    axis = counted_axis(site.view.integer("axis"), len(site.shape))
    length = site.shape[axis].number
    if length is None or length > MOST_PARTS:
        return site.opaque()
    columns: list[Expr] = []
    for piece in pieces:
        found = piece.along(axis)
        if found is None:
            return site.opaque()
        columns += found
    return site.stacked(axis, columns)


def scattered_elements(site: ElementSite) -> IndexMap | None:
    """ScatterElements of a short vector at distinct constant places, as in shape arithmetic."""
    data, indices, updates = (site.input(n) for n in ("data", "indices", "updates"))
    if data is None or indices is None or updates is None or data.shape is None:
        return None
    if "reduction" in site.view.facts.attributes and site.view.string("reduction") != "none":
        return None
    elements, places, new = data.vector(), indices.vector(), updates.vector()
    if elements is None or places is None or new is None or len(places) != len(new):
        return None
    numbers = [place.number for place in places]
    held = list(elements)
    for number, expr in zip(numbers, new, strict=True):
        if number is None or not -len(held) <= number < len(held):
            return None
        held[number] = expr
    if len({n % len(held) for n in numbers if n is not None}) != len(numbers):
        return None
    return site.stacked(0, held)


def cumulative_sum_elements(site: ElementSite) -> IndexMap | None:
    """CumSum-11/14 along an axis along which the elements are equal."""
    data, given = site.input("x"), site.input("axis")
    if data is None or data.shape is None or data.element is None or given is None:
        return None
    scalar = given.scalar()
    number = None if scalar is None else scalar.number
    if number is None or site.dtype not in SIZE_TYPES:
        return None
    axis = counted_axis(number, len(data.shape))
    if data.element.depends_on(axis):
        return None
    count = coordinate(axis)
    if site.view.integer("reverse"):
        count = data.shape[axis] - 1 - count
    if not site.view.integer("exclusive"):
        count = count + 1
    return site.whole(data.element * count)
