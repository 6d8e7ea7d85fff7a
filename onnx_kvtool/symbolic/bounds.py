"""Between which numbers an expression lies.

Sizes are taken to be below `OUTSIDE`: no axis of a tensor that fits in memory together with
the index that addresses it is longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir as ir

from onnx_kvtool.symbolic.atoms import (
    Atom,
    Choice,
    Coordinate,
    Dimension,
    Element,
    Extent,
    IsNegative,
    IsZero,
    Largest,
    Lookup,
    Modulo,
    Quotient,
)
from onnx_kvtool.symbolic.expression import Expr, Monomial, variable

__all__ = ["OUTSIDE", "Facts", "at_least", "below", "interval", "truths"]

OUTSIDE = 2**30
"""A number that no size reaches."""

Interval: TypeAlias = tuple[float, float]
"""Least and greatest number, both included; exact integers, or infinite."""

_ANY: Interval = (-math.inf, math.inf)
_RANGES: dict[ir.DataType, Interval] = {
    ir.DataType.BOOL: (0, 1),
    ir.DataType.INT64: (-(2**63), 2**63 - 1),
    ir.DataType.INT32: (-(2**31), 2**31 - 1),
}
_VARIANTS = 8
"""Most rewritings of an expression that are looked at for a bound."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What may be used about the atoms of an expression.

    Attributes:
        sizes: Size of each axis, which bounds the coordinate along it; () when unknown.
        nonnegative: Expressions that are at least 0.
        counts: Values whose elements are at least 0.
    """

    sizes: tuple[Expr, ...] = ()
    nonnegative: tuple[Expr, ...] = ()
    counts: frozenset[ir.Value] = frozenset()
    # Atoms already looked at. Choices inside choices would be looked at again and again otherwise.
    _memo: dict[Atom, Interval] = field(default_factory=dict, compare=False, repr=False)

    def given(self, *nonnegative: Expr) -> Facts:
        """Return these facts and that some more expressions are at least 0."""
        if not nonnegative:
            return self
        return Facts(self.sizes, (*self.nonnegative, *nonnegative), self.counts)


def below(a: Expr, b: Expr, facts: Facts) -> bool:
    """Return whether `a < b` is certain."""
    return interval(a - b, facts)[1] < 0


def at_least(a: Expr, b: Expr, facts: Facts) -> bool:
    """Return whether `a >= b` is certain."""
    return interval(a - b, facts)[0] >= 0


def interval(expr: Expr, facts: Facts) -> Interval:
    """Return the least and the greatest number that `expr` may be, as far as that is certain."""
    number = expr.number
    if number is not None:
        return number, number
    return -_greatest(-expr, facts), _greatest(expr, facts)


def truths(condition: Expr, holds: bool) -> tuple[Expr, ...]:
    """Return expressions that are at least 0 where a condition is 1 (or, not `holds`, is 0).

    Read are a comparison with zero and, where it holds, a conjunction of several.
    """
    if len(condition.terms) != 1:
        return ()
    ((monomial, coefficient),) = condition.terms
    if coefficient != 1 or (not holds and len(monomial) != 1):
        return ()
    found: list[Expr] = []
    for atom, _ in monomial:
        if isinstance(atom, IsNegative):
            found.append(-atom.of - 1 if holds else atom.of)
        elif isinstance(atom, IsZero) and holds:
            found += [atom.of, -atom.of]
    return tuple(found)


def _greatest(expr: Expr, facts: Facts) -> float:
    best = math.inf
    for variant in _above(expr, facts):
        best = min(best, _sum(variant, facts)[1])
        for known in facts.nonnegative:
            if _is_within(known, variant):
                best = min(best, _sum(variant + known, facts)[1])
    return best


_COMPOUND = (Modulo, Quotient, Largest, Choice)


def _is_within(known: Expr, expr: Expr) -> bool:
    """Return whether `known` brings no new atom that would have to be looked into in its turn.

    A fact about a choice would otherwise be used to bound the choice itself, without end.
    """
    return _compounds(known) <= _compounds(expr)


def _compounds(expr: Expr) -> set[Atom]:
    return {a for monomial, _ in expr.terms for a, _ in monomial if isinstance(a, _COMPOUND)}


def _above(expr: Expr, facts: Facts) -> Iterator[Expr]:
    """Yield expressions that are at least `expr`, itself first."""
    seen = [expr]
    for candidate in seen:
        yield candidate
        for atom, coefficient in candidate.linear():
            for bound in _limits(atom, coefficient > 0, facts):
                if len(seen) < _VARIANTS:
                    seen.append(candidate + (bound - variable(atom)) * coefficient)


def _limits(atom: Atom, upper: bool, facts: Facts) -> Iterator[Expr]:
    """Yield expressions that are at least (or, not `upper`, at most) `atom`."""
    if isinstance(atom, Coordinate) and upper and atom.axis < len(facts.sizes):
        size = facts.sizes[atom.axis]
        if size.number is None:
            yield size - 1
    elif isinstance(atom, Modulo) and upper and atom.by.number is None:
        if interval(atom.by, facts)[0] > 0:
            yield atom.by - 1
    elif isinstance(atom, Largest) and not upper:
        yield from atom.of


def _sum(expr: Expr, facts: Facts) -> Interval:
    low: float = 0
    high: float = 0
    for monomial, coefficient in expr.terms:
        a, b = _scaled(_product(monomial, facts), coefficient)
        low, high = low + a, high + b
    return low, high


def _scaled(one: Interval, factor: int) -> Interval:
    a, b = one[0] * factor, one[1] * factor
    return (a, b) if factor > 0 else (b, a)


def _product(monomial: Monomial, facts: Facts) -> Interval:
    result: Interval = (1, 1)
    for atom, power in monomial:
        one = _atom(atom, facts)
        for _ in range(power):
            ends = [_times(a, b) for a in result for b in one]
            result = min(ends), max(ends)
    return result


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _atom(atom: Atom, facts: Facts) -> Interval:
    known = facts._memo.get(atom)
    if known is None:
        known = facts._memo[atom] = _fresh(atom, facts)
    return known


def _fresh(atom: Atom, facts: Facts) -> Interval:
    match atom:
        case Coordinate(axis):
            size = facts.sizes[axis].number if axis < len(facts.sizes) else None
            return 0, (OUTSIDE if size is None else max(size, 1)) - 1
        case Dimension() | Extent():
            return 0, OUTSIDE - 1
        case Element(value, _):
            low, high = _RANGES.get(value.dtype, _ANY) if value.dtype is not None else _ANY
            return (max(low, 0) if value in facts.counts else low), high
        case Lookup(numbers, _):
            return min(numbers), max(numbers)
        case IsNegative() | IsZero():
            return 0, 1
        case _:
            return _compound(atom, facts)


def _floored(n: float, by: int) -> float:
    return n if math.isinf(n) else n // by


def _compound(atom: Atom, facts: Facts) -> Interval:
    match atom:
        case Modulo(_, by):
            low, high = interval(by, facts)
            return (min(0, low + 1) if low <= 0 else 0), max(0, high - 1)
        case Quotient(of, by):
            low, high = interval(of, facts)
            if by.number is not None and by.number > 0:
                return _floored(low, by.number), _floored(high, by.number)
            positive = low >= 0 and interval(by, facts)[0] > 0
            return (0, high) if positive else _ANY
        case Largest(of):
            ends = [interval(e, facts) for e in of]
            return max(a for a, _ in ends), max(b for _, b in ends)
        case Choice(condition, yes, no):
            one = interval(yes, facts.given(*truths(condition, True)))
            other = interval(no, facts.given(*truths(condition, False)))
            return min(one[0], other[0]), max(one[1], other[1])
    return _ANY
