"""Operators that move elements without a look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.ops.view import MalformedNode, counted_axes
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import ONE, Expr, coordinate, integer, product
from onnx_kvtool.symbolic.forms import modulo
from onnx_kvtool.symbolic.index_map import IndexMap
from onnx_kvtool.symbolic.rules.broadcast import broadcast_elements
from onnx_kvtool.symbolic.rules.element_site import ElementSite
from onnx_kvtool.symbolic.rules.elementwise import broadcast_shapes
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, asked, placed
from onnx_kvtool.symbolic.sizes import Shape, shape_words
from onnx_kvtool.symbolic.substitute import substitute

__all__ = [
    "expand",
    "expand_elements",
    "flatten",
    "identity_elements",
    "renumbered",
    "squeeze",
    "squeeze_elements",
    "tile",
    "tile_elements",
    "transpose",
    "transpose_elements",
    "unsqueeze",
    "unsqueeze_elements",
]


def transpose(site: ShapeSite) -> Sequence[Shape | Unknown]:
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


def unsqueeze(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Unsqueeze; `axes` count in the result."""
    shape, axes = site.shape(0), site.listed("axes") or ()
    rank = len(shape) + len(axes)
    added = {placed(axis, rank) for axis in axes}
    if len(added) != len(axes):
        raise Unknown("malformed", f"`axes` {list(axes)} repeat one")
    rest = iter(shape)
    return (tuple(ONE if axis in added else next(rest) for axis in range(rank)),)


def squeeze(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Squeeze; without `axes` every size must be a number."""
    shape, axes = site.shape(0), site.listed("axes")
    if axes is None:
        if any(size.number is None for size in shape):
            raise Unknown("data-dependent", "`axes` is absent, and a size without number may be 1")
        return (tuple(size for size in shape if size.number != 1),)
    dropped = {placed(axis, len(shape)) for axis in axes}
    for axis in sorted(dropped):
        site.same(ONE, shape[axis], 0, axis, "size of 1")
    return (tuple(size for axis, size in enumerate(shape) if axis not in dropped),)


def flatten(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Flatten to a matrix before and behind `axis`."""
    shape, axis = site.shape(0), site.view.integer("axis")
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):
        raise Unknown("malformed", f"axis {axis} lies outside of rank {len(shape)}")
    return ((product(shape[:axis]), product(shape[axis:])),)


def expand(site: ShapeSite) -> Sequence[Shape | Unknown]:
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


def tile(site: ShapeSite) -> Sequence[Shape | Unknown]:
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
    new = {axis: coordinate(places[axis]) if axis in places else integer(0) for axis in range(rank)}
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
