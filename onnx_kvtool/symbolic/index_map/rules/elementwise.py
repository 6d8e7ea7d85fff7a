"""Operators that work element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnx_kvtool.symbolic.atoms import Largest
from onnx_kvtool.symbolic.bounds import Facts, at_least, interval
from onnx_kvtool.symbolic.expression import Expr, integer, total
from onnx_kvtool.symbolic.forms import (
    choose,
    divided,
    is_less,
    is_zero,
    largest,
    modulo,
    negation,
    smallest,
)
from onnx_kvtool.symbolic.index_map.description import IndexMap
from onnx_kvtool.symbolic.index_map.rules.broadcast import broadcast
from onnx_kvtool.symbolic.index_map.site import Rule, Site

__all__ = [
    "absolute",
    "add",
    "cast",
    "clip",
    "comparison",
    "divide",
    "either",
    "equal",
    "largest_of",
    "mod",
    "multiply",
    "negate",
    "not_",
    "smallest_of",
    "subtract",
    "where",
    "xor",
]

_ZERO = integer(0)
_MOST_PRODUCTS = 1024
"""Most terms that a product of two sums is multiplied out to."""

_MOST_COMPARED = 6
"""Most expressions of which the largest is kept as such; each is compared with each."""

_INTEGERS = {ir.DataType.INT64, ir.DataType.INT32}
_INT32 = -(2**31), 2**31 - 1

_Compute = Callable[[Sequence[Expr], Facts], "Expr | None"]


def _rule(compute: _Compute) -> Rule:
    def rule(site: Site) -> IndexMap | None:
        operands = site.inputs
        # Without a type it might be arithmetic of fractions. The operands are all of one type.
        if site.dtype is None or all(operand.dtype is None for operand in operands):
            return None
        return broadcast(site, operands, compute)

    return rule


def comparison(less: bool, swap: bool) -> Rule:
    """Return the rule of Less (`less`), Greater (and `swap`), and of their opposites.

    `a >= b` is not `a < b`, and `a <= b` is not `b < a`.
    """

    def compute(operands: Sequence[Expr], facts: Facts) -> Expr:
        a, b = reversed(operands) if swap else operands
        found = is_less(a, b, facts)
        return found if less else negation(found)

    return _rule(compute)


def _multiply(operands: Sequence[Expr], facts: Facts) -> Expr | None:
    result = integer(1)
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
    if at_least(of, _ZERO, facts) and at_least(by, integer(1), facts):
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


def divide(site: Site) -> IndexMap | None:
    """Div-7/13/14 of integers."""
    return _rule(_divide)(site) if site.dtype in _INTEGERS else None


def mod(site: Site) -> IndexMap | None:
    """Mod-10/13 of integers; with `fmod=1` only where the sign of the dividend is known."""
    if site.dtype not in _INTEGERS:
        return None
    truncated = site.view.integer("fmod") != 0

    def compute(operands: Sequence[Expr], facts: Facts) -> Expr | None:
        of, by = operands
        if by.number == 0:
            return None
        positive = at_least(of, _ZERO, facts) and at_least(by, integer(1), facts)
        return modulo(of, by, facts) if positive or not truncated else None

    return _rule(compute)(site)


def cast(site: Site) -> IndexMap | None:
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


def clip(site: Site) -> IndexMap | None:
    """Clip-11/12/13 of integers; the upper limit wins where the two cross."""
    operand, low, high = site.input("input"), site.input("min"), site.input("max")
    if operand is None or site.dtype not in _INTEGERS:
        return None
    given = [limit for limit in (low, high) if limit is not None]

    def compute(operands: Sequence[Expr], facts: Facts) -> Expr:
        result, *limits = operands
        if low is not None:
            result = largest((result, limits[0]), facts)
        return smallest((result, limits[-1]), facts) if high is not None else result

    return broadcast(site, [operand, *given], compute)


def where(site: Site) -> IndexMap | None:
    """Where-9/16."""
    if site.dtype is None:
        return None
    return broadcast(
        site, site.inputs, lambda given, facts: choose(given[0], given[1], given[2], facts)
    )


add = _rule(lambda operands, facts: total(operands))
subtract = _rule(lambda operands, facts: operands[0] - operands[1])
multiply = _rule(_multiply)
negate = _rule(lambda operands, facts: -operands[0])
absolute = _rule(lambda operands, facts: largest((operands[0], -operands[0]), facts))
largest_of = _rule(_largest)
smallest_of = _rule(_smallest)
equal = _rule(lambda operands, facts: is_zero(operands[0] - operands[1], facts))
not_ = _rule(lambda operands, facts: negation(operands[0]))
either = _rule(lambda operands, facts: operands[0] + operands[1] - operands[0] * operands[1])
xor = _rule(lambda operands, facts: operands[0] + operands[1] - operands[0] * operands[1] * 2)
