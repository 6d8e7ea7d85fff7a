"""Where a scatter or a mask writes, read off what its integers hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.ops.tensor_scatter import Mode
from onnx_kvtool.symbolic.atoms import Coordinate, Element, IsZero, Modulo
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, coordinate, variable
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.substitute import as_index, simplified

__all__ = ["Positions", "element_positions", "mask_positions", "tuple_positions"]


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the new rows of an update go.

    Attributes:
        axis: The axis of the updated tensor along which the positions count.
        mode: Whether they wrap; None where they do not provably count up by one.
        start: The value that holds the first position, for each sequence or for all; where `mode`
            is None, the one that holds every position. None when it is a constant, or a result.
        batch_axis: The axis whose coordinate selects the start; None when there is one for all.
    """

    axis: int
    mode: Mode | None
    start: ir.Value | None
    batch_axis: int | None


@dataclass(frozen=True, slots=True)
class _Start:
    mode: Mode | None
    value: ir.Value | None
    axis: int | None


def element_positions(
    maps: IndexMaps, data: ir.Value, indices: ir.Value, axis: int
) -> Positions | None:
    """Return where a ScatterElements writes.

    Args:
        maps: What the values of the graph hold.
        data: The tensor that is updated.
        indices: One position per element.
        axis: The axis along which they count, from the front.
    """
    sizes, described = maps.shape(data), maps.of(indices)
    if sizes is None or described.element is None or described.shape is None:
        return None
    if not axis < len(sizes) == len(described.shape):
        return None
    start = _start(described.element, sizes[axis], described.shape, axis)
    return Positions(axis, start.mode, start.value, start.axis)


def tuple_positions(maps: IndexMaps, data: ir.Value, indices: ir.Value) -> Positions | None:
    """Return where a ScatterND writes; None unless all components but one are coordinates.

    Args:
        maps: What the values of the graph hold.
        data: The tensor that is updated.
        indices: One tuple per slice of the update.
    """
    sizes, shape = maps.shape(data), maps.shape(indices)
    depth = shape[-1].number if shape else None
    if sizes is None or shape is None or depth is None or not 1 <= depth <= len(sizes):
        return None
    found = [maps.of(indices).component(k) for k in range(depth)]
    components = [None if c is None else c.element for c in found]
    given = [c for c in components if c is not None]
    if len(given) < depth:
        return None
    grid = shape[:-1]
    facts = Facts(tuple(grid))
    given = [_legal(e, size, facts) for e, size in zip(given, sizes, strict=False)]
    axis = _counting_axis(given)
    if axis is None:
        return None
    others = {k: _own_axis(e) for k, e in enumerate(given) if k != axis}
    free = [i for i in range(len(grid)) if i not in others.values() and grid[i].number != 1]
    if len(free) > 1:
        return None
    start = _start(given[axis], sizes[axis], grid, free[0] if free else None)
    batch = next((k for k, i in others.items() if i is not None and i == start.axis), None)
    if start.axis is not None and batch is None:
        return None
    return Positions(axis, start.mode, start.value, batch)


def mask_positions(maps: IndexMaps, mask: ir.Value) -> Positions | None:
    """Return where a mask is set that compares a coordinate with one position."""
    described = maps.of(mask)
    if described.element is None or described.shape is None:
        return None
    condition = described.element.atom
    if not isinstance(condition, IsZero):
        return None
    for axis in range(1, len(described.shape)):
        parts = condition.of.split(axis)
        sign = None if parts is None else parts[0].number
        if parts is not None and sign in (1, -1):
            start = parts[1] if sign == -1 else -parts[1]
            if axis in start.axes or len(start.axes) > 1:
                return None
            found = _value(start)
            return Positions(axis, "linear", found, next(iter(start.axes), None))
    return None


def _counting_axis(components: Sequence[Expr]) -> int | None:
    """Return the component that is not the coordinate of an axis of the grid; None if unclear."""
    others = [k for k, e in enumerate(components) if _own_axis(e) is None and e.number != 0]
    if len(others) == 1:
        return others[0]
    zeros = [k for k, e in enumerate(components) if e.number == 0]
    return zeros[0] if not others and len(components) == 1 and zeros else None


def _own_axis(component: Expr) -> int | None:
    atom = component.atom
    return atom.axis if isinstance(atom, Coordinate) else None


def _start(element: Expr, size: Expr, grid: Sequence[Expr], axis: int | None) -> _Start:
    """Take `start + coordinate(axis)` apart, in its linear and in its circular form."""
    facts = Facts(tuple(grid))
    if axis is not None:
        facts = facts.given(size - grid[axis])  # no update is longer than the cache
    index = _legal(element, size, facts)
    mode: Mode = "linear"
    circle = index.atom
    if isinstance(circle, Modulo) and circle.by == size:
        mode, index = "circular", circle.of
    steps = None if axis is None or grid[axis].number == 1 else axis
    rest = index if steps is None else index - coordinate(steps)
    if len(rest.axes) > 1 or (steps is not None and steps in rest.axes):
        # A list of free positions says where each row goes; a tensor of indices says nothing more
        # than the scatter itself.
        every = index.atom
        is_list = isinstance(every, Element) and len(every.index) == 1
        return _Start(None, _value(index) if is_list else None, None)
    return _Start(mode, _value(rest), next(iter(rest.axes), None))


def _legal(element: Expr, size: Expr, facts: Facts) -> Expr:
    """Return what an index is wherever it is legal and no position counts from the end.

    TensorScatter has no positions that count from the end, and lowered ones send them out of range.
    """
    index = as_index(element, size, facts)
    for atom in index.atoms():
        if isinstance(atom, Element):
            facts = facts.given(variable(atom))
    return simplified(index, facts)


def _value(expression: Expr) -> ir.Value | None:
    atom = expression.atom
    return atom.value if isinstance(atom, Element) else None
