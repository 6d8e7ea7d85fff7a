"""Operators that move elements without looking at them."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.ops.view import MalformedNode, counted_axes
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import coordinate, integer
from onnx_kvtool.symbolic.forms import modulo
from onnx_kvtool.symbolic.index_map.description import IndexMap
from onnx_kvtool.symbolic.index_map.rules.broadcast import broadcast
from onnx_kvtool.symbolic.index_map.site import Site
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["expand", "identity", "renumbered", "squeeze", "tile", "transpose", "unsqueeze"]


def renumbered(site: Site, data: IndexMap, places: Mapping[int, int]) -> IndexMap | None:
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


def identity(site: Site) -> IndexMap | None:
    """Identity."""
    (data,) = site.inputs
    return None if data.shape is None else site.like(data.axis, data.parts)


def transpose(site: Site) -> IndexMap | None:
    """Transpose; without `perm` the axes are reversed."""
    (data,) = site.inputs
    if data.shape is None:
        return None
    rank = len(data.shape)
    perm = site.integers("perm") or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        return None
    return renumbered(site, data, {old: new for new, old in enumerate(perm)})


def unsqueeze(site: Site) -> IndexMap | None:
    """Unsqueeze-1/11/13: `axes` count in the result."""
    data, axes = site.inputs[0], site.integers("axes")
    if data.shape is None or axes is None:
        return None
    rank = len(data.shape) + len(axes)
    added = counted_axes(axes, rank)
    return renumbered(site, data, dict(enumerate(i for i in range(rank) if i not in added)))


def squeeze(site: Site) -> IndexMap | None:
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


def expand(site: Site) -> IndexMap | None:
    """Expand-8/13: by its shape operand, or else by the inferred shape of its result."""
    data, target = site.input("input"), site.input("shape")
    if data is None or data.shape is None:
        return None
    sizes = None if target is None else target.vector()
    # Equal sizes are not broadcast.
    return broadcast(
        site, [data], lambda operands, facts: operands[0], site.shape if sizes is None else sizes
    )


def tile(site: Site) -> IndexMap | None:
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
