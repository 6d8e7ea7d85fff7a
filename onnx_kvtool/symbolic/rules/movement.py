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
from onnx_kvtool.symbolic.rules.site import ElementSite, Shapes, ShapeSite, Unknown, asked, placed
from onnx_kvtool.symbolic.simplification import Facts, choose, is_less, modulo, substitute

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
    if len(added) != len(axes):
        raise Unknown("malformed", f"`axes` {list(axes)} repeat one")
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
    if not 0 <= axis <= len(shape):
        raise Unknown("malformed", f"axis {axis} lies outside of rank {len(shape)}")
    return ((product(shape[:axis]), product(shape[axis:])),)


def expand(site: ShapeSite) -> Shapes:
    """Expand: input and the asked shape, broadcast."""
    shape, target = site.shape(0), site.value(1)
    wanted = asked(site, target)
    rank = max(len(shape), len(wanted))
    sizes: list[Expr] = []
    for axis, size in enumerate(wanted):
        if size is not None:
            sizes.append(size)
            continue
        place = axis + rank - len(wanted)
        old = shape[place - rank + len(shape)] if place >= rank - len(shape) else ONE
        if old.number is not None and old.number > 1:
            sizes.append(old)
        else:
            sizes.append(site.lost(place, site.cause_of(target)))
    return (broadcast_shapes(site, [(1, tuple(sizes)), (0, shape)]),)


def tile(site: ShapeSite) -> Shapes:
    """Tile: each size times its repeats."""
    shape, value = site.shape(0), site.value(1)
    repeats = site.elements(value)
    if repeats is None or len(repeats) != len(shape):
        return (tuple(site.lost(i, site.cause_of(value)) for i in range(len(shape))),)
    return (tuple(size * n for size, n in zip(shape, repeats, strict=True)),)


def renumbered(site: ElementSite, data: IndexMap, places: Mapping[int, int]) -> IndexMap | None:
    """Return `data` with its axes in other places.

    Args:
        site: The node.
        data: What is moved; its rank is known.
        places: The new axis of each old one; the coordinate along an axis without one is 0.
    """
    rank = len(data.shape or ())
    if any(axis >= len(site.shape) for axis in places.values()):
        return None  # it is declared with another rank
    new = {axis: coordinate(places[axis]) if axis in places else ZERO for axis in range(rank)}
    facts = Facts(site.shape)
    if data.axis is not None and data.axis not in places:
        return site.opaque()
    parts = tuple(substitute(part, new, facts) for part in data.parts)
    return site.like(None if data.axis is None else places[data.axis], parts)


def identity_elements(site: ElementSite) -> IndexMap | None:
    """Identity."""
    (data,) = site.inputs
    return None if data.shape is None else site.like(data.axis, data.parts)


def transpose_elements(site: ElementSite) -> IndexMap | None:
    """Transpose; without `perm` the axes are reversed."""
    (data,) = site.inputs
    if data.shape is None:
        return None
    rank = len(data.shape)
    perm = site.integers("perm") or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        return None
    return renumbered(site, data, {old: new for new, old in enumerate(perm)})


def unsqueeze_elements(site: ElementSite) -> IndexMap | None:
    """Unsqueeze-1/11/13: `axes` count in the result."""
    data, axes = site.inputs[0], site.integers("axes")
    if data.shape is None or axes is None:
        return None
    rank = len(data.shape) + len(axes)
    added = counted_axes(axes, rank)
    return renumbered(site, data, dict(enumerate(i for i in range(rank) if i not in added)))


def squeeze_elements(site: ElementSite) -> IndexMap | None:
    """Squeeze-1/11/13; without `axes` every size must be a number."""
    data, axes = site.inputs[0], site.integers("axes")
    if data.shape is None or (axes is None and site.has("axes")):
        return None
    if axes is None:
        if any(size.number is None for size in data.shape):
            return None
        axes = tuple(i for i, size in enumerate(data.shape) if size.number == 1)
    dropped = counted_axes(axes, len(data.shape))
    kept = [axis for axis in range(len(data.shape)) if axis not in dropped]
    return renumbered(site, data, {old: new for new, old in enumerate(kept)})


def expand_elements(site: ElementSite) -> IndexMap | None:
    """Expand-8/13: by its shape operand, or else by the inferred shape of its result."""
    data, target = site.input("input"), site.input("shape")
    if data is None or data.shape is None:
        return None
    sizes = None if target is None else target.vector()
    # Equal sizes are not broadcast.
    return broadcast_elements(
        site, [data], lambda operands, facts: operands[0], site.shape if sizes is None else sizes
    )


def tile_elements(site: ElementSite) -> IndexMap | None:
    """Tile-6/13 with fixed repeats."""
    data, repeats = site.input("input"), site.integers("repeats")
    if data is None or data.shape is None or repeats is None or len(repeats) != len(data.shape):
        return None
    if any(n < 0 for n in repeats):
        raise MalformedNode("negative-size", f"`repeats` is {list(repeats)}, expected 0 or more")
    facts = Facts(site.shape)
    if data.axis is not None and repeats[data.axis] != 1:
        return site.opaque()
    wrapped = {
        axis: modulo(coordinate(axis), size, facts)
        for axis, (size, n) in enumerate(zip(data.shape, repeats, strict=True))
        if n != 1
    }
    return site.like(data.axis, tuple(substitute(part, wrapped, facts) for part in data.parts))


# Operators that pick elements by number, join them, replace them, and add them up.


def concat(site: ShapeSite) -> Shapes:
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


def gather(site: ShapeSite) -> Shapes:
    """Gather: the axis gives way to the axes of the indices."""
    shape, indices = site.shape(0), site.shape(1)
    axis = placed(site.view.integer("axis"), len(shape))
    return ((*shape[:axis], *indices, *shape[axis + 1 :]),)


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
    if taken is None or element is None or site.view.number("batch_dims") != 0:
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
