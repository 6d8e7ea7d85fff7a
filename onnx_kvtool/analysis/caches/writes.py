"""Where a scatter or a mask writes, and rolling windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache, footprint
from onnx_kvtool.analysis.caches.updates import link, map_axis
from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.walk import is_op, producer
from onnx_kvtool.core.words import binary_bytes, counted
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.ops.view import given_input, given_integer
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.expressions import (
    Coordinate,
    Element,
    Expr,
    IsZero,
    Modulo,
    coordinate,
    variable,
)
from onnx_kvtool.symbolic.simplification import Facts, as_index, simplified

if TYPE_CHECKING:
    from onnx_kvtool.symbolic.index_maps import IndexMaps

# Where a scatter or a mask writes, from the elements of its indices.


class Positions(NamedTuple):
    """The positions of the new rows of an update.

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


_Start = tuple[Mode | None, ir.Value | None, int | None]
"""Mode, start and batch axis of `Positions`; here an axis of the grid."""


def element_positions(
    maps: IndexMaps, data: ir.Value, indices: ir.Value, axis: int
) -> Positions | None:
    """Return where a ScatterElements writes."""
    sizes, described = maps.shape(data), maps.of(indices)
    if sizes is None or described.element is None or described.shape is None:
        return None
    if not axis < len(sizes) == len(described.shape):
        return None
    return Positions(axis, *_start(described.element, sizes[axis], described.shape, axis))


def tuple_positions(maps: IndexMaps, data: ir.Value, indices: ir.Value) -> Positions | None:
    """Return where a ScatterND writes; None unless all components but one are coordinates."""
    sizes, shape = maps.shape(data), maps.shape(indices)
    depth = shape[-1].number if shape else None
    if sizes is None or shape is None or depth is None or not 1 <= depth <= len(sizes):
        return None
    described = maps.of(indices)
    found = (described.component(k) for k in range(depth))
    given = [c.element for c in found if c is not None and c.element is not None]
    if len(given) < depth:
        return None
    grid = shape[:-1]
    facts = Facts(tuple(grid))
    given = [_legal(e, size, facts) for e, size in zip(given, sizes, strict=False)]
    axis = _counting_axis(given)
    if axis is None:
        return None
    others = {k: own_axis(e) for k, e in enumerate(given) if k != axis}
    free = [i for i in range(len(grid)) if i not in others.values() and grid[i].number != 1]
    if len(free) > 1:
        return None
    mode, start, own = _start(given[axis], sizes[axis], grid, free[0] if free else None)
    batch = next((k for k, i in others.items() if i is not None and i == own), None)
    return None if own is not None and batch is None else Positions(axis, mode, start, batch)


def mask_positions(maps: IndexMaps, mask: ir.Value) -> Positions | None:
    """Return the position of a mask that compares a coordinate with it."""
    described = maps.of(mask)
    if described.element is None or described.shape is None:
        return None
    found = compared(described.element, 1)
    if found is None or found[0] in found[1].axes or len(found[1].axes) > 1:
        return None
    axis, start = found
    return Positions(axis, "linear", _value(start), next(iter(start.axes), None))


def compared(element: Expr, first: int = 0) -> tuple[int, Expr] | None:
    """Return the axis, from a first one on, whose coordinate a test compares, and with what."""
    atom = element.atom
    if not isinstance(atom, IsZero):
        return None
    for axis in sorted(atom.of.axes):
        parts = atom.of.split(axis) if axis >= first else None
        sign = None if parts is None else parts[0].number
        if parts is not None and sign in (1, -1):
            return axis, parts[1] if sign == -1 else -parts[1]
    return None


def _counting_axis(components: Sequence[Expr]) -> int | None:
    """Return the component that is not the coordinate of an axis of the grid; None if unclear."""
    others = [k for k, e in enumerate(components) if own_axis(e) is None and e.number != 0]
    if len(others) == 1:
        return others[0]
    return 0 if [e.number for e in components] == [0] else None


def own_axis(component: Expr) -> int | None:
    """Return the axis whose coordinate an expression is; None for any other."""
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
        return None, _value(index) if is_list else None, None
    return mode, _value(rest), next(iter(rest.axes), None)


def _legal(element: Expr, size: Expr, facts: Facts) -> Expr:
    """Return an index, assuming that it is legal and counts from the front.

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


# Caches of the last rows; each step moves them up for new ones.


_MOST_ABOVE = 16
"""Most nodes between a past and the scatter into it that are looked through."""

_TO_THE_END = 2**31 - 1
"""What exporters write for the end of a Slice, or more."""


def rolling(caches: Sequence[Cache]) -> list[Cache]:
    """Return the caches whose rows move up in every step, judged by their nodes.

    Such a cache is cut from a Concat of past and new rows, is a Concat of the last rows of the past
    and new ones, or takes new rows into what a Concat of two halves of the past has rolled, or a
    Gather of its rows.
    """
    return [cache for cache in caches if cache.past is not None and _rolls(cache)]


def rolling_in_words(caches: Sequence[Cache]) -> str:
    """Return the cost of a step due to rolling caches, as a clause."""
    text = f"a step moves all rows of {counted(len(caches), 'window')}"
    per_token = footprint(caches).bytes_per_token
    if per_token is None:
        return text
    return f"{text}, {binary_bytes(per_token)} for each row of one sequence"


def rolling_command(caches: Sequence[Cache], model: str = "") -> str:
    """Return the command that makes circular caches of them; an empty `model` is left out."""
    # What a scatter writes into has a number of rows, even where it is unknown along which axis.
    fixed = (isinstance(cache.capacity, int) or cache.kind != "concat" for cache in caches)
    capacity = "" if all(fixed) else "--capacity N"
    parts = ("kvtool raise", model, capacity, "--assume rotated-rows")
    return " ".join(part for part in parts if part)


def _rolls(cache: Cache) -> bool:
    past, node = cache.past_value, cache.node
    if cache.is_growing or past is None:
        return False
    if cache.is_rolling:
        return True
    if cache.kind == "concat":
        head = producer(node.inputs[0]) if len(node.inputs) == 2 else None
        if head is None or not is_op(head, "Slice") or given_input(head, 0) is not past:
            return False
        ends = ConstantFolder().listed(given_input(head, 2))
        return min(ends or (0,)) >= _TO_THE_END
    axis = None
    if is_op(node, "ScatterElements", "TensorScatter"):
        axis = _axis(node, 0 if node.op_type == "ScatterElements" else -2)
    return any(_is_moved(value, past, axis) for value in node.inputs)


def _is_moved(value: ir.Value | None, past: ir.Value, axis: int | None) -> bool:
    """Return whether a value is the past with its rows moved; `axis` is theirs, if it is known.

    Sequences may be put in another order as well, as a beam search does, which is no window.
    """
    moves, folder = False, ConstantFolder()
    for _ in range(_MOST_ABOVE):
        if value is past:
            return moves and axis is not None and axis > 0
        step = None if value is None else link(value, folder)
        if step is None or step.how not in ("same", "view", "moved"):
            return False
        if step.how == "moved":
            along = _moved_axis(step.node)
            if along is None or axis not in (None, along):
                return False
            axis, moves = along, True
        else:
            axis = map_axis(step.axes, axis)
        value = step.source
    return False


def _moved_axis(node: ir.Node) -> int | None:
    """Return the axis along which a node takes whole rows of a value, as many axes as before."""
    if is_op(node, "Concat"):
        return _axis(node, None)
    dims = dims_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if is_op(node, "Gather") and len(dims or ()) == 1:
        return _axis(node, 0)
    is_row = is_op(node, "GatherND") and dims is not None and len(dims) == 2 and dims[-1] == 1
    return 0 if is_row and given_integer(node, "batch_dims", 0) == 0 else None


def _axis(node: ir.Node, default: int | None) -> int | None:
    axis = given_integer(node, "axis", default)
    if axis is None or axis >= 0:
        return axis
    dims = dims_of(node.inputs[0])
    return None if dims is None or axis < -len(dims) else axis + len(dims)
