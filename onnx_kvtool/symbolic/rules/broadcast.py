"""Broadcasting of descriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer
from onnx_kvtool.symbolic.index_map import MOST_PARTS, IndexMap
from onnx_kvtool.symbolic.rules.element_site import ElementSite, Unrelated
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["broadcast_elements"]


def broadcast_elements(
    site: ElementSite,
    operands: Sequence[IndexMap],
    compute: Callable[[Sequence[Expr], Facts], Expr | None],
    target: Sequence[Expr] = (),
) -> IndexMap | None:
    """Return what an operator holds that computes each element from those in the same place.

    Args:
        site: The node.
        operands: What it reads.
        compute: The element from those of the operands, over the coordinates of the result; None
            when nothing is known of it.
        target: Further sizes that take part in the broadcast, as the operand of Expand.

    Returns:
        None when a rank is unknown. An element that depends on a coordinate whose axis may be
        broadcast is not known: were its size 1, the coordinate would be another.
    """
    shapes = [operand.shape for operand in operands]
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes):
        return None
    sizes, rank = site.shape, len(site.shape)
    if any(len(shape) > rank for shape in known):
        return None  # it is declared with another rank
    facts = Facts(sizes)
    if not all(operand.parts for operand in operands):
        return site.opaque()
    shifts = [rank - len(shape) for shape in known]
    for operand, shape, shift in zip(operands, known, shifts, strict=True):
        used = {axis for part in operand.parts for axis in part.axes}
        used |= set() if operand.axis is None else {operand.axis}
        for axis in sorted(used):
            if shape[axis] != sizes[axis + shift]:
                others = _met([*known, tuple(target)], axis + shift, rank)
                site.unrelated += _unrelated(axis + shift, shape[axis], sizes[axis + shift], others)
    if site.unrelated:
        return site.opaque()
    stacked = {o.axis + s for o, s in zip(operands, shifts, strict=True) if o.axis is not None}
    if len(stacked) > 1:
        return site.opaque()
    if not stacked:
        element = compute(
            [_shifted(o.parts[0], s, facts) for o, s in zip(operands, shifts, strict=True)], facts
        )
        return site.opaque() if element is None else site.whole(element)
    (axis,) = stacked
    columns = [_columns(o, s, axis, sizes, facts) for o, s in zip(operands, shifts, strict=True)]
    parts: list[Expr] = []
    for row in zip(*columns, strict=True):
        part = compute(row, facts)
        if part is None:
            return site.opaque()
        parts.append(part)
    return site.stacked(axis, parts)


def _met(shapes: Sequence[tuple[Expr, ...]], axis: int, rank: int) -> list[Expr]:
    """Return the sizes that meet on an axis of the result."""
    return [shape[axis - rank] for shape in shapes if rank - axis <= len(shape)]


def _unrelated(axis: int, size: Expr, result: Expr, met: Sequence[Expr]) -> list[Unrelated]:
    """Name what `size` would have to equal: the sizes that it meets, else that of the result."""
    others = [other for other in met if other not in (size, integer(1))]
    return [Unrelated(axis, size, other) for other in dict.fromkeys(others or [result])]


def _shifted(part: Expr, shift: int, facts: Facts) -> Expr:
    if not shift:
        return part
    return substitute(part, {i: coordinate(i + shift) for i in part.axes}, facts)


def _columns(
    operand: IndexMap, shift: int, axis: int, sizes: tuple[Expr, ...], facts: Facts
) -> list[Expr]:
    """Return the operand's expression at each place along `axis` of the result."""
    if operand.axis is not None:
        return [_shifted(part, shift, facts) for part in operand.parts]
    count = sizes[axis].number
    assert count is not None and count <= MOST_PARTS  # it is the axis of a stacked operand
    part = _shifted(operand.parts[0], shift, facts)
    return [substitute(part, {axis: integer(k)}, facts) for k in range(count)]
