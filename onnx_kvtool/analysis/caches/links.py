"""Operators that hand a tensor on: the same, arranged differently, cast, or a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.symbolic.dims import Dim, dims_of

__all__ = ["UNKNOWN_AXES", "AxisMap", "Link", "compose", "inverted", "link", "map_axis"]

AxisMap = tuple[int | None, ...] | Literal["same"] | None
"""Which axis of one layout each axis of another one is; None: it is not known."""

UNKNOWN_AXES: AxisMap = None

How = Literal["same", "view", "cast", "moved", "updated"]


@dataclass(frozen=True, slots=True)
class Link:
    """How an output of a node holds what one of its inputs holds.

    Attributes:
        node: The node.
        source: The input.
        how: `same` tensor; a `view` with other dimensions; `cast` to another type; rows `moved` or
            left out; `updated` by a scatter.
        axes: For each axis of the output, the axis of the input.
    """

    node: ir.Node
    source: ir.Value
    how: How
    axes: AxisMap


def link(value: ir.Value, folder: Folder) -> Link | None:
    """Return how `value` holds what an input of its producer holds; None when it is computed."""
    node = value.producer()
    if node is None or not node.inputs:
        return None
    kinds = traits(node)
    if node.op_type == "Concat" and Trait.SHIFTS in kinds:
        return _concat(node)
    source = node.inputs[0]
    if source is None:
        return None
    if Trait.PART in kinds:
        return Link(node, source, "moved", "same" if Trait.KEEPS_AXES in kinds else UNKNOWN_AXES)
    if value.index() != 0:
        return None
    for trait, how in _SAME_AXES:
        if trait in kinds:
            return Link(node, source, how, "same")
    if Trait.REARRANGES in kinds:
        return Link(node, source, "view", _view_axes(node, source, value, folder))
    return None


_SAME_AXES: tuple[tuple[Trait, How], ...] = (
    (Trait.SAME, "same"),
    (Trait.CONVERTS, "cast"),
    (Trait.UPDATES, "updated"),
)


def base(value: ir.Value) -> ir.Value:
    """Return the tensor that `value` is a slice of; `value` itself when it is none."""
    node = value.producer()
    if node is None or not {Trait.PART, Trait.KEEPS_AXES} <= traits(node).kinds:
        return value
    source = node.inputs[0] if node.inputs else None
    return value if source is None else source


def _concat(node: ir.Node) -> Link | None:
    """See through a Concat of one value, or of slices of one value alone, which rolls its rows."""
    bases = {None if v is None else base(v) for v in node.inputs}
    if len(bases) != 1 or (source := bases.pop()) is None:
        return None
    if len(node.inputs) == 1 and node.inputs[0] is source:
        return Link(node, source, "same", "same")
    return Link(node, source, "moved", "same")


def _view_axes(node: ir.Node, source: ir.Value, value: ir.Value, folder: Folder) -> AxisMap:
    given, result = dims_of(source), dims_of(value)
    if node.op_type == "Transpose":
        attribute = node.attributes.get("perm")
        if attribute is None:
            return None if given is None else tuple(reversed(range(len(given))))
        if attribute.is_ref() or attribute.type != ir.AttributeType.INTS:
            return None
        perm = tuple(attribute.as_ints())
        return perm if sorted(perm) == list(range(len(perm))) else None
    if node.op_type in ("Squeeze", "Unsqueeze"):
        axes = _axes(node, folder)
        if axes is not None and given is not None:
            return _with_axes(node.op_type, len(given), axes)
    if given is None or result is None:
        return None
    return _by_size(given, result)


def _axes(node: ir.Node, folder: Folder) -> tuple[int, ...] | None:
    attribute = node.attributes.get("axes")  # an input from opset 13 on
    if attribute is not None:
        if attribute.is_ref() or attribute.type != ir.AttributeType.INTS:
            return None
        return tuple(attribute.as_ints())
    numbers = folder.integers(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if numbers is None else tuple(int(n) for n in numbers.ravel())


def _with_axes(op_type: str, rank: int, axes: tuple[int, ...]) -> AxisMap:
    wide = rank + len(axes) if op_type == "Unsqueeze" else rank
    if any(not -wide <= axis < wide for axis in axes):
        return None
    changed = {axis % wide for axis in axes}
    if op_type == "Squeeze":
        return tuple(axis for axis in range(rank) if axis not in changed)
    kept = iter(range(rank))
    return tuple(None if axis in changed else next(kept, None) for axis in range(wide))


def _by_size(given: tuple[Dim, ...], result: tuple[Dim, ...]) -> AxisMap:
    """Match the axes that a reshape leaves alone: equal sizes from the front and from the back."""
    front = _common(given, result)
    back = _common(given[front:][::-1], result[front:][::-1])
    axes: list[int | None] = [None] * len(result)
    axes[:front] = range(front)
    for step in range(1, back + 1):
        axes[-step] = len(given) - step
    return tuple(axes)


def _common(one: tuple[Dim, ...], other: tuple[Dim, ...]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a is None or a != b:
            break
        count += 1
    return count


def map_axis(axes: AxisMap, axis: int | None) -> int | None:
    """Return what `axis` is in the other layout; None when that is not known."""
    if axis is None or axes is None:
        return None
    if axes == "same":
        return axis
    return axes[axis] if 0 <= axis < len(axes) else None


def compose(first: AxisMap, then: AxisMap) -> AxisMap:
    """Return the map that goes through `first` and on through `then`."""
    if first == "same":
        return then
    if then == "same" or first is None:
        return first
    return tuple(map_axis(then, axis) for axis in first)


def inverted(axes: AxisMap) -> AxisMap:
    """Return the map in the other direction."""
    if axes is None or axes == "same":
        return axes
    back: list[int | None] = [None] * (max((a for a in axes if a is not None), default=-1) + 1)
    for here, there in enumerate(axes):
        if there is not None:
            back[there] = here
    return tuple(back)
