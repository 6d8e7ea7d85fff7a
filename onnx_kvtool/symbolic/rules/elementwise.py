"""Operators that work element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.symbolic.broadcasting import broadcast_size
from onnx_kvtool.symbolic.contents import IndexMap
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


_Compute = Callable[..., "Expr | None"]


def broadcast_elements(
    site: ElementSite,
    operands: Sequence[IndexMap],
    compute: _Compute,
    target: Exprs = (),
) -> IndexMap | None:
    """Return the elements of an elementwise operator.

    Args:
        site: The node.
        operands: What it reads.
        compute: The element from those of the operands, over the coordinates of the result, behind
            the facts about these; None when nothing is known of it.
        target: Further sizes that take part in the broadcast, as the operand of Expand.

    Returns:
        None when a rank is unknown. An element that depends on a coordinate whose axis may be
        broadcast is unknown: were its size 1, the coordinate would be another.
    """
    shapes = [operand.shape for operand in operands if operand.shape is not None]
    sizes, rank = site.sizes, len(site.sizes)
    if len(shapes) != len(operands) or any(len(shape) > rank for shape in shapes):
        return None  # the rank of one is unknown, or the result is declared with another rank
    if not all(operand.parts for operand in operands):
        return site.opaque()
    facts, stacked = Facts(sizes), set[int]()
    for operand, shape in zip(operands, shapes, strict=True):
        used, shift = {axis for part in operand.parts for axis in part.axes}, rank - len(shape)
        if operand.axis is not None:
            used.add(operand.axis)
            stacked.add(operand.axis + shift)
        for axis in sorted(used):
            size, place = shape[axis], axis + shift
            if size != sizes[place]:
                # It would have to equal the sizes that it meets, else that of the result.
                met = [one[place - rank] for one in (*shapes, target) if rank - place <= len(one)]
                others = [other for other in met if other not in (size, ONE)] or [sizes[place]]
                site.unrelated += [Unrelated(place, size, o) for o in dict.fromkeys(others)]
    if site.unrelated or len(stacked) > 1:
        return site.opaque()
    along = next(iter(stacked), None)
    count = max(len(operand.parts) for operand in operands)
    columns = []
    for operand, shape in zip(operands, shapes, strict=True):
        column = [_shifted(part, rank - len(shape), facts) for part in operand.parts]
        if along is not None and operand.axis is None:
            column = [substitute(column[0], {along: integer(k)}, facts) for k in range(count)]
        columns.append(column)
    parts = [compute(facts, *row) for row in zip(*columns, strict=True)]
    known = [part for part in parts if part is not None]
    return site.like(along, known) if len(known) == len(parts) else site.opaque()


def _shifted(part: Expr, shift: int, facts: Facts) -> Expr:
    if not shift:
        return part
    return substitute(part, {i: coordinate(i + shift) for i in part.axes}, facts)


_FIRST_NUMPY = 7
"""Below this opset an input is fitted to the first one, whose shape the result has."""

_MOST_PRODUCTS = 1024
"""Most terms that a product of two sums is multiplied out to."""

_MOST_COMPARED = 6
"""Most operands of a largest expression that is kept; each is compared with each."""

_INT32 = -(2**31), 2**31 - 1


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


def broadcast_shapes(site: ShapeSite, shapes: Sequence[tuple[int, Shape]]) -> Shape:
    """Return the broadcast of some shapes, each with the position of its input, for the report."""
    rank = max((len(shape) for _, shape in shapes), default=0)
    result = []
    for axis in range(rank):
        size: Expr = ONE
        for index, shape in shapes:
            place = axis - rank + len(shape)
            if place >= 0:
                size = _meet(site, size, shape[place], index, place, axis)
        result.append(size)
    return tuple(result)


def _meet(site: ShapeSite, a: Expr, b: Expr, index: int, place: int, axis: int) -> Expr:
    size = broadcast_size(a, b, site.knowledge.equalities)
    if size is not None:
        return size
    if a.number is not None and b.number is not None:
        site.refuse(index, place, a, "sizes to broadcast")
        return a
    for atom in (*a.atoms(), *b.atoms()):
        lost = site.knowledge.lost_sizes.get(atom)
        if lost is not None:
            return site.knowledge.unknown_size(site.node.outputs[0], axis, lost)
        if isinstance(atom, Element):
            return site.lost(axis, site.cause_of(atom.value))
    why = f"{_named(a)} and {_named(b)} are broadcast, and either may be 1"
    return site.lost(axis, why, code="ambiguous-broadcast")


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

    def compute(facts: Facts, a: Expr, b: Expr) -> Expr:
        found = is_less(b, a, facts) if swap else is_less(a, b, facts)
        return found if less else negation(found)

    return _rule(compute)


def _multiply(facts: Facts, *operands: Expr) -> Expr | None:
    result = ONE
    for operand in operands:
        if len(result.terms) * len(operand.terms) > _MOST_PRODUCTS:
            return None
        result = result * operand
    return result


def _divide(facts: Facts, of: Expr, by: Expr) -> Expr | None:
    # Rounding is towards zero, which is down for what is not negative.
    n = by.number
    if n is not None and n != 0 and all(k % n == 0 for _, k in of.terms):
        return Expr.of({m: k // n for m, k in of.terms})
    if at_least(of, ZERO, facts) and at_least(by, ONE, facts):
        return divided(of, by, facts)
    return None


def _largest(facts: Facts, *operands: Expr) -> Expr | None:
    if len(operands) > _MOST_COMPARED:
        return None
    found = largest(operands, facts)
    atom = found.atom
    return None if isinstance(atom, Largest) and len(atom.of) > _MOST_COMPARED else found


def _smallest(facts: Facts, *operands: Expr) -> Expr | None:
    found = _largest(facts, *(-operand for operand in operands))
    return None if found is None else -found


def divide_elements(site: ElementSite) -> IndexMap | None:
    """Div-7/13/14 of integers."""
    return _rule(_divide)(site) if site.dtype in SIZE_TYPES else None


def mod_elements(site: ElementSite) -> IndexMap | None:
    """Mod-10/13 of integers; with `fmod=1` only where the sign of the dividend is known."""
    if site.dtype not in SIZE_TYPES:
        return None
    truncated = site.view.integer("fmod") != 0

    def compute(facts: Facts, of: Expr, by: Expr) -> Expr | None:
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

    def compute(facts: Facts, result: Expr, *limits: Expr) -> Expr:
        if low is not None:
            result = largest((result, limits[0]), facts)
        return smallest((result, limits[-1]), facts) if high is not None else result

    return broadcast_elements(site, [operand, *given], compute)


def where_elements(site: ElementSite) -> IndexMap | None:
    """Where-9/16."""
    if site.dtype is None:
        return None
    return broadcast_elements(
        site, site.inputs, lambda facts, condition, yes, no: choose(condition, yes, no, facts)
    )


add_elements = _rule(lambda facts, *operands: total(operands))
subtract_elements = _rule(lambda facts, a, b: a - b)
multiply_elements = _rule(_multiply)
negate_elements = _rule(lambda facts, a: -a)
absolute_elements = _rule(lambda facts, a: largest((a, -a), facts))
largest_of_elements = _rule(_largest)
smallest_of_elements = _rule(_smallest)
equal_elements = _rule(lambda facts, a, b: is_zero(a - b, facts))
not_elements = _rule(lambda facts, a: negation(a))
either_elements = _rule(lambda facts, a, b: a + b - a * b)
xor_elements = _rule(lambda facts, a, b: a + b - a * b * 2)
