"""Operators that move, pick or join elements."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.ops.view import MalformedNode, counted_axes, counted_axis
from onnx_kvtool.symbolic.contents import MOST_PARTS, IndexMap
from onnx_kvtool.symbolic.dimensions import shape_words
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Expr, coordinate, product, total
from onnx_kvtool.symbolic.rules.elementwise import broadcast_elements, broadcast_shapes
from onnx_kvtool.symbolic.rules.site import (
    ElementSite,
    Shapes,
    ShapeSite,
    Unknown,
    asked,
    changed,
    constants,
    malformed_if,
    placed,
)
from onnx_kvtool.symbolic.simplification import Facts, from_the_front, modulo, substitute

# Operators that move elements without a look at them.


def transpose(site: ShapeSite) -> Shapes:
    """Transpose; without `perm` the axes are reversed."""
    shape = site.shape(0)
    perm = site.view.attribute("perm")
    order = perm if isinstance(perm, tuple) and perm else tuple(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        site.conflict("operand-shape", 0, shape_words(shape), f"rank {len(order)}", "`perm`")
        raise Unknown(
            "malformed",
            f"`perm` {list(order)} is no order of {counted(len(shape), 'axis', 'axes')}",
        )
    return (tuple(shape[int(axis)] for axis in order),)


def unsqueeze(site: ShapeSite) -> Shapes:
    """Unsqueeze; `axes` count in the result."""
    shape, axes = site.shape(0), site.listed("axes") or ()
    rank = len(shape) + len(axes)
    added = {placed(axis, rank) for axis in axes}
    malformed_if(len(added) != len(axes), f"`axes` {list(axes)} repeat one")
    rest = iter(shape)
    return (tuple(ONE if axis in added else next(rest) for axis in range(rank)),)


def squeeze(site: ShapeSite) -> Shapes:
    """Squeeze; without `axes` every size must be a number."""
    shape, axes = site.shape(0), site.listed("axes")
    if axes is None:
        if any(size.number is None for size in shape):
            raise Unknown("data-dependent", "`axes` is absent, and an unknown size may be 1")
        return (tuple(size for size in shape if size.number != 1),)
    dropped = {placed(axis, len(shape)) for axis in axes}
    for axis in sorted(dropped):
        site.same(ONE, shape[axis], 0, axis, "size of 1")
    return (tuple(size for axis, size in enumerate(shape) if axis not in dropped),)


def flatten(site: ShapeSite) -> Shapes:
    """Flatten to a matrix before and behind `axis`."""
    shape, axis = site.shape(0), site.view.integer("axis")
    axis = axis + len(shape) if axis < 0 else axis
    malformed_if(not 0 <= axis <= len(shape), f"axis {axis} lies outside of rank {len(shape)}")
    return ((product(shape[:axis]), product(shape[axis:])),)


def expand(site: ShapeSite) -> Shapes:
    """Expand: input and the asked shape, broadcast."""
    shape, target = site.shape(0), site.value(1)
    wanted = asked(site, target)
    more = len(wanted) - len(shape)
    before = ((ONE,) * more + shape)[max(-more, 0) :]
    sizes = list(before)
    for axis, (size, old) in enumerate(zip(wanted, before, strict=True)):
        if size is not None:
            sizes[axis] = size
        elif (old.number or 0) < 2:
            sizes[axis] = site.lost(axis + max(-more, 0), site.cause_of(target))
    return (broadcast_shapes(site, [(1, tuple(sizes)), (0, shape)]),)


def tile(site: ShapeSite) -> Shapes:
    """Tile: each size times its repeats."""
    shape, value = site.shape(0), site.value(1)
    repeats = site.elements(value)
    if repeats is None or len(repeats) != len(shape):
        return (tuple(site.lost(i, site.cause_of(value)) for i in range(len(shape))),)
    return (tuple(size * n for size, n in zip(shape, repeats, strict=True)),)


def _renumbered(site: ElementSite, places: Mapping[int, int]) -> IndexMap | None:
    """Return the first input with its axes in other places.

    `places` has the new axis of each old one; the coordinate along an axis without one is 0.
    """
    data, shape = site.ranked(0)
    if any(axis >= len(site.sizes) for axis in places.values()):
        return None  # it is declared with another rank
    if data.axis is not None and data.axis not in places:
        return site.opaque()
    new = {axis: coordinate(places[axis]) if axis in places else ZERO for axis in range(len(shape))}
    return site.moved(None if data.axis is None else places[data.axis], data.parts, new)


def identity_elements(site: ElementSite) -> IndexMap | None:
    """Identity."""
    (data,) = site.inputs
    return None if data.shape is None else site.like(data.axis, data.parts)


def transpose_elements(site: ElementSite) -> IndexMap | None:
    """Transpose; without `perm` the axes are reversed."""
    _, shape = site.ranked(0)
    perm = site.integers("perm") or range(len(shape))[::-1]
    if sorted(perm) != list(range(len(shape))):
        return None
    return _renumbered(site, {old: new for new, old in enumerate(perm)})


def unsqueeze_elements(site: ElementSite) -> IndexMap | None:
    """Unsqueeze-1/11/13: `axes` count in the result."""
    (_, shape), axes = site.ranked(0), site.integers("axes")
    if axes is None:
        return None
    rank = len(shape) + len(axes)
    added = counted_axes(axes, rank)
    return _renumbered(site, dict(enumerate(i for i in range(rank) if i not in added)))


def squeeze_elements(site: ElementSite) -> IndexMap | None:
    """Squeeze-1/11/13; without `axes` every size must be a number."""
    (_, shape), axes = site.ranked(0), site.listed("axes")
    if axes is None:
        if any(size.number is None for size in shape):
            return None
        axes = tuple(i for i, size in enumerate(shape) if size.number == 1)
    dropped = counted_axes(axes, len(shape))
    kept = [axis for axis in range(len(shape)) if axis not in dropped]
    return _renumbered(site, {old: new for new, old in enumerate(kept)})


def expand_elements(site: ElementSite) -> IndexMap | None:
    """Expand-8/13: by its shape operand, or else by the inferred shape of its result."""
    (data, _), sizes = site.ranked(0), site.expressions("shape")
    # Equal sizes are not broadcast.
    return broadcast_elements(
        site, [data], lambda facts, element: element, site.sizes if sizes is None else sizes
    )


def tile_elements(site: ElementSite) -> IndexMap | None:
    """Tile-6/13 with fixed repeats."""
    (data, shape), repeats = site.ranked(0), site.integers("repeats")
    if repeats is None or len(repeats) != len(shape):
        return None
    if any(n < 0 for n in repeats):
        raise MalformedNode("negative-size", f"`repeats` is {list(repeats)}, expected 0 or more")
    if data.axis is not None and repeats[data.axis] != 1:
        return site.opaque()
    facts = Facts(site.sizes)
    wrapped = {
        axis: modulo(coordinate(axis), size, facts)
        for axis, (size, n) in enumerate(zip(shape, repeats, strict=True))
        if n != 1
    }
    return site.moved(data.axis, data.parts, wrapped)


# Operators that pick elements by number, join them, replace them, and add them up.


def concat(site: ShapeSite) -> Shapes:
    """Concat: the sum along `axis`; all other sizes are shared."""
    shapes = [site.shape(i) for i in range(len(site.node.inputs))]
    malformed_if(not shapes, "`Concat` has no inputs")
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


def gather(site: ShapeSite) -> Shapes:
    """Gather: the axis gives way to the axes of the indices."""
    shape, indices = site.shape(0), site.shape(1)
    axis = placed(site.view.integer("axis"), len(shape))
    return (changed(shape, axis, *indices),)


def gather_nd(site: ShapeSite) -> Shapes:
    """GatherND: the last axis of the indices addresses as many axes of the data as it is long."""
    shape, indices = site.shape(0), site.shape(1)
    batch = site.view.number("batch_dims")
    taken = indices[-1].number if indices else None
    if taken is None:
        raise Unknown("unknown-rank", "the size of the last axis of the indices is unknown")
    return ((*indices[:-1], *shape[batch + taken :]),)


def gather_elements(site: ElementSite) -> IndexMap | None:
    """Gather-11/13; an index may count from the end, and is taken to be in range."""
    (data, shape), (indices, index_shape) = site.ranked(0), site.ranked(1)
    axis, rank = counted_axis(site.view.integer("axis"), len(shape)), len(index_shape)
    if not data.parts or not indices.parts:
        return site.opaque()
    facts = Facts(site.sizes)
    # Coordinates behind the axis move by the rank of the indices, less the axis itself.
    behind = {i: coordinate(i + rank - 1) for i in range(axis + 1, len(shape))}
    if data.axis == axis:
        # Among the parts of the data, at constant places.
        places = constants(indices.vector() if rank else indices.parts) or ()
        size = len(data.parts)
        if not places or any(not -size <= place < size for place in places):
            return site.opaque()
        return site.moved(axis if rank else None, [data.parts[place] for place in places], behind)

    def pick(part: Expr, index: Expr) -> Expr:
        row = substitute(index, {i: coordinate(i + axis) for i in range(rank)}, facts)
        row = from_the_front(row, shape[axis], facts)
        return substitute(part, {**behind, axis: row}, facts)

    if data.axis is not None and indices.axis is not None:
        return site.opaque()
    parts = [pick(part, index) for part in data.parts for index in indices.parts]
    if data.axis is not None:
        return site.stacked(data.axis + (rank - 1) * (data.axis > axis), parts)
    return site.like(None if indices.axis is None else indices.axis + axis, parts)


def gather_nd_elements(site: ElementSite) -> IndexMap | None:
    """GatherND-11/12/13 without batch axes; an index may count from the end, and is in range."""
    (data, shape), (indices, index_shape) = site.ranked(0), site.ranked(1)
    rank = len(index_shape)
    taken = indices.along(rank - 1) if rank else None
    element = data.element
    if taken is None or element is None or site.view.number("batch_dims") != 0:
        return site.opaque()
    if len(taken) > len(shape):
        return None
    facts = Facts(site.sizes)
    places = {i: coordinate(i - len(taken) + rank - 1) for i in range(len(taken), len(shape))}
    for axis, index in enumerate(taken):
        places[axis] = from_the_front(index, shape[axis], facts)
    return site.whole(substitute(element, places, facts))


def concat_elements(site: ElementSite) -> IndexMap | None:
    """Concat-4/11/13 of pieces of fixed sizes that are `MOST_PARTS` in all at most."""
    pieces = site.inputs
    if any(piece.shape is None for piece in pieces):
        return None
    if len(pieces) == 1:
        return site.like(pieces[0].axis, pieces[0].parts)
    axis = counted_axis(site.view.integer("axis"), len(site.sizes))
    columns = [piece.along(axis) for piece in pieces]
    parts = [part for column in columns for part in column or ()]
    if None in columns or len(parts) > MOST_PARTS:
        return site.opaque()
    return site.stacked(axis, parts)


def scattered_elements(site: ElementSite) -> IndexMap | None:
    """ScatterElements of a short vector at distinct constant places, as in shape arithmetic."""
    if site.view.string("reduction", "none") != "none":
        return None
    elements, new = site.expressions("data"), site.expressions("updates")
    places = site.integers("indices")
    if not site.sizes or elements is None or places is None or len(places) != len(new or ()):
        return None
    found = dict(zip(counted_axes(places, len(elements)), new or (), strict=True))
    return site.stacked(0, [found.get(i, held) for i, held in enumerate(elements)])


def cumulative_sum_elements(site: ElementSite) -> IndexMap | None:
    """CumSum-11/14 along an axis along which the elements are equal."""
    (data, shape), given = site.ranked(0), site.integers("axis") or ()
    if data.element is None or site.dtype not in SIZE_TYPES or len(given) != 1:
        return None
    axis = counted_axis(given[0], len(shape))
    if data.element.depends_on(axis):
        return None
    count = coordinate(axis)
    if site.view.integer("reverse"):
        count = shape[axis] - 1 - count
    if not site.view.integer("exclusive"):
        count = count + 1
    return site.whole(data.element * count)
