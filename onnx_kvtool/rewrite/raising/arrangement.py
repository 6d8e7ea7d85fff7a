"""Values with the elements of another one: axes in another order, axes of size 1 more or fewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.updates import operand_of, squeezed
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import squeeze, unsqueeze
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.expressions import Expr, Exprs
from onnx_kvtool.symbolic.index_maps import IndexMaps

Axes = tuple[int | None, ...]
"""For each axis of a value the axis of its base that it is; None for an axis of size 1 that the
base lacks. Axes of the base that do not occur have size 1."""

Sizes = tuple[Exprs, ...]
"""For each axis of a value, expressions of its size, all of them true."""


class Arrangement(NamedTuple):
    """A value, as an arrangement of the axes of another.

    `axes` are those of `base`, in the order of those of the value.
    """

    base: ir.Value
    rank: int
    axes: Axes

    @property
    def inverse(self) -> Axes:
        """Axes of the base over those of the value; None for one of size 1 that it lacks."""
        places = {axis: place for place, axis in enumerate(self.axes) if axis is not None}
        return tuple(places.get(axis) for axis in range(self.rank))


def compose(outer: Sequence[int | None], inner: Sequence[int | None]) -> Axes:
    """Return the axes of a value over the base of its base."""
    return tuple(None if axis is None else inner[axis] for axis in outer)


def completed(axes: Sequence[int | None], rank: int) -> Axes:
    """Put unused axes of the base, of size 1, in the place of missing ones."""
    unused = [axis for axis in range(rank) if axis not in axes]
    return tuple(unused.pop(0) if a is None and unused else a for a in axes)


def arranged(
    em: Emitter, value: ir.Value, rank: int, axes: Axes, hint: str | None = None
) -> ir.Value:
    """Return `value` with its axes in the given order; no node where they are in it already.

    None in `axes` is a new axis of size 1. Axes that do not occur have size 1. `hint` is the last
    part of the names of new nodes.
    """
    axes = completed(axes, rank)
    unused = [axis for axis in range(rank) if axis not in axes]
    if unused:
        value = squeeze(em, value, unused, hint)
    kept = [axis for axis in range(rank) if axis in axes]
    perm = [kept.index(axis) for axis in axes if axis is not None]
    if perm != sorted(perm):
        value = em.op("Transpose", value, perm=perm, hint=hint)
    new = [place for place, axis in enumerate(axes) if axis is None]
    if new:
        value = unsqueeze(em, value, new, hint)
    return value


def seen_through(
    value: ir.Value, maps: IndexMaps, sizes: Sizes | None = None
) -> Iterator[Arrangement]:
    """Yield a value as an arrangement of itself, of what it is made from, and so on upwards.

    `sizes` are known beyond what the graph says. Without them nothing is yielded for a value of
    unknown rank.
    """
    shape = maps.shape(value)
    if shape is not None and sizes is None:
        sizes = tuple((size,) for size in shape)
    if sizes is None:
        return
    axes: Axes = tuple(range(len(sizes)))
    rank = len(sizes)
    yield Arrangement(value, rank, axes)
    seen: set[ir.Value] = set()
    while (node := value.producer()) is not None and value not in seen:
        seen.add(value)
        found = rearranges(node, maps, sizes)
        if found is None:
            return
        source = node.inputs[0]
        above = None if source is None else maps.shape(source)
        if source is None or above is None:
            return
        sizes = _sizes_above(found, sizes, above)
        value, rank = source, len(above)
        axes = compose(axes, found)
        yield Arrangement(value, rank, axes)


def _sizes_above(axes: Axes, sizes: Sizes, above: Sequence[Expr]) -> Sizes:
    """Return the known sizes of a base: its own, and those of the value that rearranges it."""
    known = [[size] for size in above]
    for place, axis in enumerate(axes):
        if axis is not None:
            known[axis] += [size for size in sizes[place] if size not in known[axis]]
    return tuple(map(tuple, known))


_MOVING = frozenset({"Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def rearranges(node: ir.Node, maps: IndexMaps, sizes: Sizes | None = None) -> Axes | None:
    """Return the axes of the output of a node over its first input; None if it moves elements.

    `sizes` are the known sizes of the output; None for those in the graph.
    """
    if node.domain != "" or node.op_type not in _MOVING or len(node.outputs) != 1:
        return None
    try:
        view = NodeView(node, maps.opset)
        source = node.inputs[0]
        shape = None if source is None else maps.shape(source)
        if shape is None:
            return None
        if sizes is None:
            result = maps.shape(node.outputs[0])
            sizes = None if result is None else tuple((size,) for size in result)
        rank = len(shape)
        match node.op_type:
            case "Identity":
                found: Axes | None = tuple(range(rank))
            case "Transpose":
                perm = view.integers("perm") or [*range(rank)][::-1]
                found = tuple(perm) if sorted(perm) == [*range(rank)] else None
            case "Squeeze" | "Unsqueeze":
                axes = operand_of(view, "axes", lambda value: _listed(maps.of(value)))
                numbers = [axis.number for axis in axes or () if axis.number is not None]
                is_known = 0 < len(numbers) == len(axes or ())
                found = squeezed(node.op_type, rank, numbers) if is_known else None
            case _:
                found = _same_elements(shape, sizes, is_reshape=node.op_type == "Reshape")
    except MalformedNode:
        return None
    if found is None or (sizes is not None and len(sizes) != len(found)):
        return None
    return found


def _listed(described: IndexMap) -> Exprs | None:
    """Return the elements of a vector, or the only one; None where they are unknown."""
    alone = described.scalar()
    return described.vector() if alone is None else (alone,)


def _same_elements(before: Sequence[Expr], sizes: Sizes | None, *, is_reshape: bool) -> Axes | None:
    """Read a Reshape or Expand that changes nothing but axes of size 1, by the sizes alone."""
    if sizes is None:
        return None
    old = [axis for axis, size in enumerate(before) if size.number != 1]
    new = [axis for axis, known in enumerate(sizes) if all(size.number != 1 for size in known)]
    if len(old) != len(new):
        return None
    partner = dict(zip(new, old, strict=True))
    differing = [axis for axis, other in partner.items() if before[other] not in sizes[axis]]
    # As many elements as before: where all other sizes are numbers above 0, the last is equal too.
    others = [before[other].number for axis, other in partner.items() if axis not in differing]
    is_forced = is_reshape and len(differing) == 1 and all(others)
    if differing and not is_forced:
        return None
    return completed([partner.get(axis) for axis in range(len(sizes))], len(before))
