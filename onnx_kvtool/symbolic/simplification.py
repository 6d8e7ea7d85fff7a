"""Expressions with bounds and other coordinates, simplified where that is certain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import onnx_ir as ir

from onnx_kvtool.symbolic.expressions import (
    ONE,
    ZERO,
    Atom,
    Choice,
    Coordinate,
    Dimension,
    Element,
    Expr,
    Exprs,
    Extent,
    IsNegative,
    IsZero,
    Largest,
    Lookup,
    Modulo,
    Monomial,
    Quotient,
    integer,
    total,
    variable,
)

# Between which numbers an expression lies.
#
# Sizes are taken to be below `OUTSIDE`: no axis of a tensor that fits in memory together with the
# index that addresses it is longer.


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

    sizes: Exprs = ()
    nonnegative: Exprs = ()
    counts: frozenset[ir.Value] = frozenset()
    # Atoms already looked at. Choices inside choices would be looked at again and again otherwise.
    _memo: dict[Atom, Interval] = field(default_factory=dict, compare=False, repr=False)

    def given(self, *nonnegative: Expr) -> Facts:
        """Return these facts and that some more expressions are at least 0."""
        if not nonnegative:
            return self
        return Facts(self.sizes, (*self.nonnegative, *nonnegative), self.counts)


def below(a: Expr, b: Expr, facts: Facts | None = None) -> bool:
    """Return whether `a < b` is certain."""
    return interval(a - b, facts)[1] < 0


def at_least(a: Expr, b: Expr, facts: Facts | None = None) -> bool:
    """Return whether `a >= b` is certain."""
    return interval(a - b, facts)[0] >= 0


def interval(expr: Expr, facts: Facts | None = None) -> Interval:
    """Return the least and the greatest number that `expr` may be, as far as that is certain."""
    number = expr.number
    if number is not None:
        return number, number
    facts = facts or Facts()
    return -_greatest(-expr, facts), _greatest(expr, facts)


def truths(condition: Expr, holds: bool) -> Exprs:
    """Return expressions that are at least 0 where a condition is 1 (or, not `holds`, is 0).

    Understands a comparison with zero and, if it holds, a conjunction of several.
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
            # It adds no new compound atom: a fact about a choice would be used to bound the choice
            # itself, without end.
            if _compounds(known) <= _compounds(variant):
                best = min(best, _sum(variant + known, facts)[1])
    return best


_COMPOUND = (Modulo, Quotient, Largest, Choice)


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
        a, b = (end * coefficient for end in _product(monomial, facts))
        low, high = low + min(a, b), high + max(a, b)
    return low, high


def _product(monomial: Monomial, facts: Facts) -> Interval:
    result: Interval = (1, 1)
    for atom, power in monomial:
        one = facts._memo.get(atom)
        if one is None:
            one = facts._memo[atom] = _fresh(atom, facts)
        for _ in range(power):
            ends = [0 if a == 0 or b == 0 else a * b for a in result for b in one]
            result = min(ends), max(ends)
    return result


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
        case Modulo(_, by):
            low, high = interval(by, facts)
            return (min(0, low + 1) if low <= 0 else 0), max(0, high - 1)
        case Quotient(of, by):
            low, high = interval(of, facts)
            if (n := by.number or 0) > 0:
                low, high = (end if math.isinf(end) else end // n for end in (low, high))
                return low, high
            positive = low >= 0 and interval(by, facts)[0] > 0
            return (0, high) if positive else _ANY
        case Largest(of):
            ends = [interval(e, facts) for e in of]
            return max(a for a, _ in ends), max(b for _, b in ends)
        case Choice(condition, yes, no):
            one = interval(yes, facts.given(*truths(condition, True)))
            other = interval(no, facts.given(*truths(condition, False)))
            return min(one[0], other[0]), max(one[1], other[1])


# Expressions that are no polynomials, simplified where that is certain.


def modulo(of: Expr, by: Expr, facts: Facts | None = None) -> Expr:
    """Return `of` modulo `by` with the sign of `by`; `by` is taken not to be 0."""
    facts = facts or Facts()
    if by.number is not None and abs(by.number) == 1:
        return ZERO
    of = _without_multiples(of, by)
    if _is_rest(of, by, facts):
        return of
    if len(by.terms) > 1 and (whole := _whole_sums(of, by, facts)) is not None:
        return of - whole * by
    return variable(Modulo(of, by))


def _without_multiples(of: Expr, by: Expr) -> Expr:
    """Return an expression that differs from `of` by a multiple of `by`."""
    if not by.terms:
        return of
    result = of
    for atom, coefficient in of.linear():
        if not isinstance(atom, Modulo):
            continue
        n, m = by.number, atom.by.number
        if atom.by == by or (n and m is not None and m % n == 0):
            result = result + (atom.of - variable(atom)) * coefficient
    if len(by.terms) > 1:
        return result
    ((factor, k),) = by.terms
    return result - _multiples(result, factor, k) * by


def _multiples(of: Expr, factor: Monomial, k: int) -> Expr:
    """Return the quotient of the terms of `of` that are multiples of one term.

    Of the constant, its multiples of a number count as well: (x + 8) / 3 is (x + 2) / 3 + 2.
    """
    wholes = ((m, c) for m, c in of.terms if factor <= m and (not m or c % k == 0))
    return Expr.of({m - factor: c // k for m, c in wholes})


def _whole_sums(of: Expr, by: Expr, facts: Facts) -> Expr | None:
    """Return how often a sum goes into `of`, where what is left is certain to be less than it.

    `P + L` goes into `b * (P + L) + j` b times if j is less. Each term of the sum is tried as a
    divisor of terms of `of`; None if none of them leaves such a rest.
    """
    for factor, k in by.terms:
        whole = _multiples(of, factor, k)
        if factor and _is_rest(of - whole * by, by, facts):
            return whole
    return None


def _is_rest(rest: Expr, by: Expr, facts: Facts) -> bool:
    """Return whether what is left by a division is certainly the remainder."""
    return at_least(rest, ZERO, facts) and below(rest, by, facts)


def divided(of: Expr, by: Expr, facts: Facts | None = None) -> Expr:
    """Return `of / by` rounded down; `by` is taken to be at least 1."""
    facts = facts or Facts()
    if not by.terms:
        return variable(Quotient(of, by))
    if len(by.terms) == 1:
        ((factor, k),) = by.terms
        whole = _multiples(of, factor, k)
    elif (sums := _whole_sums(of, by, facts)) is not None:
        return sums
    else:
        whole = ONE if of == by else ZERO
    rest = of - whole * by
    return whole if _is_rest(rest, by, facts) else whole + variable(Quotient(rest, by))


def largest(of: Iterable[Expr], facts: Facts | None = None) -> Expr:
    """Return the largest of at least one expression."""
    facts = facts or Facts()
    flat: list[Expr] = []
    for expr in of:
        atom = expr.atom
        flat += atom.of if isinstance(atom, Largest) else [expr]
    kept: list[Expr] = []
    for expr in flat:
        if not any(at_least(other, expr, facts) for other in kept):
            kept = [other for other in kept if not at_least(expr, other, facts)]
            kept.append(expr)
    return kept[0] if len(kept) == 1 else variable(Largest(frozenset(kept)))


def smallest(of: Iterable[Expr], facts: Facts | None = None) -> Expr:
    """Return the smallest of at least one expression."""
    return -largest((-expr for expr in of), facts)


def is_less(a: Expr, b: Expr, facts: Facts) -> Expr:
    """Return 1 where `a < b`, else 0."""
    low, high = interval(a - b, facts)
    if high < 0:
        return ONE
    return ZERO if low >= 0 else variable(IsNegative(a - b))


def is_zero(of: Expr, facts: Facts) -> Expr:
    """Return 1 where `of` is zero, else 0."""
    low, high = interval(of, facts)
    if low == high == 0:
        return ONE
    if low > 0 or high < 0:
        return ZERO
    inside = _range_check(of) or _range_check(-of)
    if inside is not None:
        start, size = inside
        return is_less(-start - 1, ZERO, facts) * is_less(start, size, facts)
    return variable(IsZero(min(of, -of, key=str)))


def _range_check(of: Expr) -> tuple[Expr, Expr] | None:
    """Read `mod(x, n) - x` with n > 0, which is zero where 0 <= x < n: return x and n."""
    for atom, coefficient in of.linear():
        if coefficient == 1 and isinstance(atom, Modulo) and (atom.by.number or 0) > 0:
            return (atom.of, atom.by) if variable(atom) - atom.of == of else None
    return None


def negation(condition: Expr) -> Expr:
    """Return 1 where a condition (0 or 1) is 0, and 0 where it is 1."""
    atom = condition.atom
    if isinstance(atom, IsNegative):
        return variable(IsNegative(-atom.of - 1))
    return ONE - condition


def choose(condition: Expr, yes: Expr, no: Expr, facts: Facts) -> Expr:
    """Return `yes` where `condition` (0 or 1) is 1, else `no`."""
    if condition.number is not None:
        return yes if condition.number else no
    opposite = negation(condition)
    if len(opposite.terms) < len(condition.terms) or (
        isinstance(condition.atom, IsNegative) and str(opposite) < str(condition)
    ):
        condition, yes, no = opposite, no, yes
    if yes == no:
        return yes
    atom = condition.atom
    if isinstance(atom, IsZero) and (yes - no) in (atom.of, -atom.of):
        return no
    if isinstance(atom, IsNegative):
        # What is at most 0 is 0 where it is not negative: -d for a size d. So for at least -1.
        low, high = interval(atom.of, facts)
        if high <= 0 and (yes - no) in (atom.of, -atom.of):
            return yes
        if low >= -1 and (yes - no) in (atom.of + 1, -atom.of - 1):
            return no
    return variable(Choice(condition, yes, no))


def from_the_front(index: Expr, size: Expr, facts: Facts) -> Expr:
    """Return an index that may count from the end of an axis, counted from its front."""
    return choose(is_less(index, ZERO, facts), index + size, index, facts)


def lookup(numbers: tuple[int, ...], index: Expr) -> Expr:
    """Return the number at place `index` of a list; `index` is within the list."""
    place = index.number
    if place is not None and 0 <= place < len(numbers):
        return integer(numbers[place])
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
    if all(n == numbers[0] + step * i for i, n in enumerate(numbers)):
        return index * step + numbers[0]
    return variable(Lookup(numbers, index))


# Expressions with other coordinates, or with more known of them.


def substitute(
    expr: Expr,
    coordinates: Mapping[int, Expr],
    facts: Facts,
    atoms: Mapping[Atom, Expr] | None = None,
) -> Expr:
    """Return `expr` with coordinates, and perhaps atoms, replaced, all at once.

    Args:
        expr: The expression.
        coordinates: For an axis, what takes the place of the coordinate along it; others stay.
        facts: What is known of the coordinates of the result.
        atoms: What takes the place of an atom; it is over the coordinates of the result.
    """
    if expr.axes.isdisjoint(coordinates) and not atoms:
        return expr
    return _Rebuilding(coordinates, atoms or {}, facts).expr(expr)


def simplified(expr: Expr, facts: Facts) -> Expr:
    """Return `expr` with every comparison, choice and modulo decided that the facts decide."""
    return _Rebuilding({}, {}, facts).expr(expr)


def as_index(expr: Expr, size: Expr, facts: Facts) -> Expr:
    """Return what an index is wherever it lies in [-size, size - 1].

    Scatters and gathers fail for every other index, so that a replacement of them may use it. If
    one side of a choice is never such an index, the other side replaces it: a guard that sends
    illegal starts outside the cache vanishes.

    Args:
        expr: The index.
        size: Length of the axis that it addresses.
        facts: What else is known, sizes of the coordinates among it.
    """
    left: Expr | None = expr
    while left is not None:
        expr = simplified(left, facts)
        left = _without_a_side(expr, size, facts)
    return expr


def _without_a_side(index: Expr, size: Expr, facts: Facts) -> Expr | None:
    """Return an index without one side of a choice that lies outside; None where none does."""
    for atom, coefficient in index.linear():
        if not isinstance(atom, Choice) or coefficient != 1:
            continue
        rest = index - variable(atom)
        for holds, side, other in ((True, atom.yes, atom.no), (False, atom.no, atom.yes)):
            here = facts.given(*truths(atom.condition, holds))
            if at_least(side + rest, size, here) or below(side + rest, -size, here):
                return other + rest
    return None


class _Rebuilding(NamedTuple):
    """One pass over an expression; the arguments of `substitute`."""

    coordinates: Mapping[int, Expr]
    atoms: Mapping[Atom, Expr]
    facts: Facts

    def expr(self, expr: Expr) -> Expr:
        if expr.number is not None:
            return expr
        terms = []
        for monomial, coefficient in expr.terms:
            term = integer(coefficient)
            for atom, power in monomial:
                one = self.atom(atom)
                for _ in range(power):
                    term = one * term
            terms.append(term)
        return terms[0] if len(terms) == 1 else total(terms)

    def atom(self, atom: Atom) -> Expr:
        if isinstance(atom, Coordinate):
            return self.coordinates.get(atom.axis) or variable(atom)
        if atom in self.atoms:
            return self.atoms[atom]
        parts = tuple(self.expr(part) for part in atom.parts)
        match atom:
            case Dimension():
                return variable(atom)
            case Extent(value):
                return variable(Extent(value, parts[0]))
            case Element(value):
                return variable(Element(value, parts))
            case Lookup(numbers):
                return lookup(numbers, parts[0])
            case Modulo():
                return modulo(parts[0], parts[1], self.facts)
            case Quotient():
                return divided(parts[0], parts[1], self.facts)
            case Largest():
                return largest(parts, self.facts)
            case IsNegative():
                return is_less(parts[0], ZERO, self.facts)
            case IsZero():
                return is_zero(parts[0], self.facts)
            case Choice():
                return choose(parts[0], parts[1], parts[2], self.facts)
