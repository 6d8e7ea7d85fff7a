"""What can be proven of the indices of a scatter: negative, out of range, twice the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_kvtool.symbolic.atoms import Modulo
from onnx_kvtool.symbolic.bounds import Facts, at_least, below
from onnx_kvtool.symbolic.expression import ZERO, Expr, coordinate, integer
from onnx_kvtool.symbolic.index_map import IndexMap
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["IndexFacts", "element_index_facts", "index_facts", "tuple_index_facts"]


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What is certain of some indices: True, False, or None where neither is.

    Attributes:
        negative: Whether one of them is negative, that is counts from the end.
        out_of_range: Whether one of them is outside [-size, size - 1], so that the scatter fails.
        duplicate: Whether two of them address the same place, so that the result depends on the
            order of writing.

    True is said of an index that has elements; an empty one does nothing.
    """

    negative: bool | None
    out_of_range: bool | None
    duplicate: bool | None


_UNKNOWN = IndexFacts(None, None, None)


def tuple_index_facts(
    index: IndexMap, data: Sequence[Expr], facts: Facts | None = None
) -> IndexFacts:
    """Return what is certain of the indices of a ScatterND or GatherND without batch dimensions.

    Args:
        index: The indices, (..., K).
        data: Shape of the data, of rank K or more.
        facts: What else is known; the sizes of the coordinates are those of `index`.
    """
    width = index.shape[-1].number if index.shape else None
    if width is None or not index.shape or width > len(data):
        return _UNKNOWN
    parts = index.along(len(index.shape) - 1)
    if parts is None:
        return _UNKNOWN
    return index_facts(parts, index.shape[:-1], data[:width], facts)


def element_index_facts(
    index: IndexMap, data: Sequence[Expr], axis: int, facts: Facts | None = None
) -> IndexFacts:
    """Return what is certain of the indices of a ScatterElements.

    Args:
        index: The indices, of the rank of the data.
        data: Shape of the data.
        axis: The axis that is addressed, counted from the front.
        facts: As for `tuple_index_facts`.
    """
    if index.shape is None or index.element is None or len(index.shape) != len(data):
        return _UNKNOWN
    components = [
        index.element if i == axis else coordinate(i) if size.number != 1 else ZERO
        for i, size in enumerate(index.shape)
    ]
    return index_facts(components, index.shape, data, facts)


def index_facts(
    components: Sequence[Expr],
    shape: Sequence[Expr],
    sizes: Sequence[Expr],
    facts: Facts | None = None,
) -> IndexFacts:
    """Return what is certain of index tuples.

    Args:
        components: Each component over the coordinates of `shape`.
        shape: Sizes of the axes along which the tuples stand.
        sizes: Length of the axis that each component addresses.
        facts: What else is known to be at least 0.
    """
    known = Facts(tuple(shape), () if facts is None else facts.nonnegative)
    pairs = list(zip(components, sizes, strict=True))
    seen = [[e, *_corners(e, shape)] for e in components]
    negative = _verdict(
        never=all(at_least(e, ZERO, known) for e in components),
        always=any(below(v, ZERO, known) for values in seen for v in values),
    )
    out_of_range = _verdict(
        never=all(below(e, n, known) and at_least(e, -n, known) for e, n in pairs),
        always=any(
            at_least(v, n, known) or below(v, -n, known)
            for values, n in zip(seen, sizes, strict=True)
            for v in values
        ),
    )
    duplicate = _verdict(
        never=_is_injective(pairs, shape, known), always=_repeats(components, shape)
    )
    return IndexFacts(negative, out_of_range, duplicate)


def _verdict(*, never: bool, always: bool) -> bool | None:
    return True if always else False if never else None


def _corners(expr: Expr, shape: Sequence[Expr]) -> list[Expr]:
    """Return an expression at its first and, where the sizes are numbers, its last coordinates."""
    numbers = [size.number for size in shape]
    first = substitute(expr, dict.fromkeys(expr.axes, ZERO), Facts())
    if any(not numbers[i] for i in expr.axes):
        return [first] if all(n != 0 for n in numbers) else []
    last = {i: integer((numbers[i] or 1) - 1) for i in expr.axes}
    return [first, substitute(expr, last, Facts())]


def _repeats(components: Sequence[Expr], shape: Sequence[Expr]) -> bool:
    """Return whether no component depends on an axis of two or more places."""
    used = {axis for expr in components for axis in expr.axes}
    return any((size.number or 0) > 1 and axis not in used for axis, size in enumerate(shape))


def _is_injective(pairs: Sequence[tuple[Expr, Expr]], shape: Sequence[Expr], facts: Facts) -> bool:
    """Return whether the tuple gives every coordinate back, one after another.

    A component gives the coordinate along an axis when it is a multiple of it plus what depends on
    coordinates already given, and stays within its axis without meeting itself from the end.
    """
    missing = {axis for axis, size in enumerate(shape) if size.number != 1}
    while missing:
        given = {
            axis for axis in missing for e, n in pairs if _gives(e, n, axis, missing, shape, facts)
        }
        if not given:
            return False
        missing -= given
    return True


def _gives(
    expr: Expr, size: Expr, axis: int, missing: set[int], shape: Sequence[Expr], facts: Facts
) -> bool:
    if expr.axes & missing != {axis}:
        return False
    atom, modulus = expr.atom, None
    if isinstance(atom, Modulo):
        expr, modulus = atom.of, atom.by
    found = expr.split(axis)
    step = None if found is None else found[0].number
    if not step:
        return False
    reach = (shape[axis] - 1) * abs(step)
    if modulus is not None:
        return at_least(modulus, integer(1), facts) and below(reach, modulus, facts)
    return at_least(expr, ZERO, facts) or below(reach, size, facts)
