"""Operators that work element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.symbolic.broadcasting import broadcast_size
from onnx_kvtool.symbolic.contents import MOST_PARTS, IndexMap
from onnx_kvtool.symbolic.dimensions import Shape, words
from onnx_kvtool.symbolic.expressions import (
    ONE,
    ZERO,
    Element,
    Expr,
    Exprs,
    Largest,
    coordinate,
    integer,
    total,
)
from onnx_kvtool.symbolic.rules.site import (
    ElementRule,
    ElementSite,
    ShapeRule,
    Shapes,
    ShapeSite,
    Unrelated,
    malformed_if,
)
from onnx_kvtool.symbolic.simplification import (
    Facts,
    at_least,
    choose,
    divided,
    interval,
    is_less,
    is_zero,
    largest,
    modulo,
    negation,
    smallest,
    substitute,
)

# Broadcasting of descriptions.


def broadcast_elements(
    site: ElementSite,
    operands: Sequence[IndexMap],
    compute: Callable[[Sequence[Expr], Facts], Expr | None],
    target: Sequence[Expr] = (),
) -> IndexMap | None:
    """Return the elements of an elementwise operator.

    Args:
        site: The node.
        operands: What it reads.
        compute: The element from those of the operands, over the coordinates of the result; None
            when nothing is known of it.
        target: Further sizes that take part in the broadcast, as the operand of Expand.

    Returns:
        None when a rank is unknown. An element that depends on a coordinate whose axis may be
        broadcast is unknown: were its size 1, the coordinate would be another.
    """
    shapes = [operand.shape for operand in operands]
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes):
        return None
    sizes, rank = site.sizes, len(site.sizes)
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


def _met(shapes: Sequence[Exprs], axis: int, rank: int) -> list[Expr]:
    """Return the sizes that meet on an axis of the result."""
    return [shape[axis - rank] for shape in shapes if rank - axis <= len(shape)]


def _unrelated(axis: int, size: Expr, result: Expr, met: Sequence[Expr]) -> list[Unrelated]:
    """Name what `size` would have to equal: the sizes that it meets, else that of the result."""
    others = [other for other in met if other not in (size, ONE)]
    return [Unrelated(axis, size, other) for other in dict.fromkeys(others or [result])]


def _shifted(part: Expr, shift: int, facts: Facts) -> Expr:
    if not shift:
        return part
    return substitute(part, {i: coordinate(i + shift) for i in part.axes}, facts)


def _columns(operand: IndexMap, shift: int, axis: int, sizes: Exprs, facts: Facts) -> list[Expr]:
    """Return the operand's expression at each place along `axis` of the result."""
    if operand.axis is not None:
        return [_shifted(part, shift, facts) for part in operand.parts]
    count = sizes[axis].number
    assert count is not None and count <= MOST_PARTS  # it is the axis of a stacked operand
    part = _shifted(operand.parts[0], shift, facts)
    return [substitute(part, {axis: integer(k)}, facts) for k in range(count)]


_FIRST_NUMPY = 7
"""Below this opset an input is fitted to the first one, whose shape the result has."""

_MOST_PRODUCTS = 1024
"""Most terms that a product of two sums is multiplied out to."""

_MOST_COMPARED = 6
"""Most expressions of which the largest is kept as such; each is compared with each."""

_INT32 = -(2**31), 2**31 - 1

_Compute = Callable[[Sequence[Expr], Facts], "Expr | None"]


def like(index: int, outputs: int = 1) -> ShapeRule:
    """Return the rule of an operator whose first outputs have the shape of one input."""

    def rule(site: ShapeSite) -> Shapes:
        return (site.shape(index),) * outputs

    return rule


def one_shape(site: ShapeSite) -> Shapes:
    """SwiGLU: its inputs have one shape, and each may say what the other leaves open."""
    a, b = site.shape(0), site.shape(1)
    malformed_if(len(a) != len(b), f"`{site.node.op_type}` takes inputs of one shape")
    pairs = enumerate(zip(a, b, strict=True))
    return (tuple(site.same(one, other, 1, axis, "shape") for axis, (one, other) in pairs),)


def broadcast(site: ShapeSite) -> Shapes:
    """Add, Where, Max and all others that broadcast their inputs to one shape."""
    if site.opset < _FIRST_NUMPY:
        return (site.shape(0),)
    indices = [i for i, value in enumerate(site.node.inputs) if value is not None]
    return (broadcast_shapes(site, [(i, site.shape(i)) for i in indices]),)


def broadcast_shapes(
    site: ShapeSite, shapes: Sequence[tuple[int, Shape]], output: int = 0
) -> Shape:
    """Return the broadcast of some shapes, each with the position of its input, for the report."""
    rank = max((len(shape) for _, shape in shapes), default=0)
    result = []
    for axis in range(rank):
        size: Expr = ONE
        for index, shape in shapes:
            place = axis - rank + len(shape)
            if place >= 0:
                size = _meet(site, size, shape[place], index, place, axis, output)
        result.append(size)
    return tuple(result)


def _meet(
    site: ShapeSite, a: Expr, b: Expr, index: int, place: int, axis: int, output: int
) -> Expr:
    size = broadcast_size(a, b, site.knowledge.equalities)
    if size is not None:
        return size
    if a.number is not None and b.number is not None:
        site.refuse(index, place, a, "sizes to broadcast")
        return a
    for atom in (*a.atoms(), *b.atoms()):
        lost = site.knowledge.lost_sizes.get(atom)
        if lost is not None:
            return site.knowledge.unknown_size(site.node.outputs[output], axis, lost)
        if isinstance(atom, Element):
            return site.lost(axis, site.cause_of(atom.value), output=output)
    why = f"{_named(a)} and {_named(b)} are broadcast, and either may be 1"
    return site.lost(axis, why, code="ambiguous-broadcast", output=output)


def _named(size: Expr) -> str:
    text = words(size)
    return "an unknown size" if text is None else f"`{text}`"


def _rule(compute: _Compute) -> ElementRule:
    def rule(site: ElementSite) -> IndexMap | None:
        operands = site.inputs
        # Without a type it might be arithmetic of fractions. The operands are all of one type.
        if site.dtype is None or all(operand.dtype is None for operand in operands):
            return None
        return broadcast_elements(site, operands, compute)

    return rule


def comparison_elements(less: bool, swap: bool) -> ElementRule:
    """Return the rule of Less (`less`), Greater (and `swap`), and of their opposites.

    `a >= b` is not `a < b`, and `a <= b` is not `b < a`.
    """

    def compute(operands: Sequence[Expr], facts: Facts) -> Expr:
        a, b = reversed(operands) if swap else operands
        found = is_less(a, b, facts)
        return found if less else negation(found)

    return _rule(compute)


def _multiply(operands: Sequence[Expr], facts: Facts) -> Expr | None:
    result = ONE
    for operand in operands:
        if len(result.terms) * len(operand.terms) > _MOST_PRODUCTS:
            return None
        result = result * operand
    return result


def _divide(operands: Sequence[Expr], facts: Facts) -> Expr | None:
    # Rounding is towards zero, which is down for what is not negative.
    of, by = operands
    n = by.number
    if n is not None and n != 0 and all(k % n == 0 for _, k in of.terms):
        return Expr.of({m: k // n for m, k in of.terms})
    if at_least(of, ZERO, facts) and at_least(by, ONE, facts):
        return divided(of, by, facts)
    return None


def _largest(operands: Sequence[Expr], facts: Facts) -> Expr | None:
    if len(operands) > _MOST_COMPARED:
        return None
    found = largest(operands, facts)
    atom = found.atom
    return None if isinstance(atom, Largest) and len(atom.of) > _MOST_COMPARED else found


def _smallest(operands: Sequence[Expr], facts: Facts) -> Expr | None:
    found = _largest([-operand for operand in operands], facts)
    return None if found is None else -found


def divide_elements(site: ElementSite) -> IndexMap | None:
    """Div-7/13/14 of integers."""
    return _rule(_divide)(site) if site.dtype in SIZE_TYPES else None


def mod_elements(site: ElementSite) -> IndexMap | None:
    """Mod-10/13 of integers; with `fmod=1` only where the sign of the dividend is known."""
    if site.dtype not in SIZE_TYPES:
        return None
    truncated = site.view.integer("fmod") != 0

    def compute(operands: Sequence[Expr], facts: Facts) -> Expr | None:
        of, by = operands
        if by.number == 0:
            return None
        positive = at_least(of, ZERO, facts) and at_least(by, ONE, facts)
        return modulo(of, by, facts) if positive or not truncated else None

    return _rule(compute)(site)


def cast_elements(site: ElementSite) -> IndexMap | None:
    """Cast and CastLike; a value that may not fit the new type has no description."""
    (operand, *_) = site.inputs
    if operand.dtype is None or site.dtype is None or operand.shape is None:
        return None
    if not operand.parts:
        return site.opaque()
    facts, parts = operand.facts, operand.parts
    ends = [interval(part, facts) for part in parts]
    low, high = min(a for a, _ in ends), max(b for _, b in ends)
    if site.dtype == ir.DataType.BOOL and not (low >= 0 and high <= 1):
        parts = tuple(negation(is_zero(part, facts)) for part in parts)
    if site.dtype == ir.DataType.INT32 and not (low >= _INT32[0] and high <= _INT32[1]):
        parts = ()
    return site.like(operand.axis, parts)


def clip_elements(site: ElementSite) -> IndexMap | None:
    """Clip-11/12/13 of integers; the upper limit wins where the two cross."""
    operand, low, high = site.input("input"), site.input("min"), site.input("max")
    if operand is None or site.dtype not in SIZE_TYPES:
        return None
    given = [limit for limit in (low, high) if limit is not None]

    def compute(operands: Sequence[Expr], facts: Facts) -> Expr:
        result, *limits = operands
        if low is not None:
            result = largest((result, limits[0]), facts)
        return smallest((result, limits[-1]), facts) if high is not None else result

    return broadcast_elements(site, [operand, *given], compute)


def where_elements(site: ElementSite) -> IndexMap | None:
    """Where-9/16."""
    if site.dtype is None:
        return None
    return broadcast_elements(
        site, site.inputs, lambda given, facts: choose(given[0], given[1], given[2], facts)
    )


add_elements = _rule(lambda operands, facts: total(operands))
subtract_elements = _rule(lambda operands, facts: operands[0] - operands[1])
multiply_elements = _rule(_multiply)
negate_elements = _rule(lambda operands, facts: -operands[0])
absolute_elements = _rule(lambda operands, facts: largest((operands[0], -operands[0]), facts))
largest_of_elements = _rule(_largest)
smallest_of_elements = _rule(_smallest)
equal_elements = _rule(lambda operands, facts: is_zero(operands[0] - operands[1], facts))
not_elements = _rule(lambda operands, facts: negation(operands[0]))
either_elements = _rule(
    lambda operands, facts: operands[0] + operands[1] - operands[0] * operands[1]
)
xor_elements = _rule(
    lambda operands, facts: operands[0] + operands[1] - operands[0] * operands[1] * 2
)
