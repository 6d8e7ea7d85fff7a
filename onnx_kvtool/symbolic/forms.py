"""Expressions that are no polynomials, simplified where that is certain."""

from __future__ import annotations

from collections.abc import Iterable

from onnx_kvtool.symbolic.atoms import Choice, IsNegative, IsZero, Largest, Lookup, Modulo, Quotient
from onnx_kvtool.symbolic.bounds import Facts, at_least, below, interval
from onnx_kvtool.symbolic.expression import ONE, ZERO, Expr, integer, variable

__all__ = [
    "choose",
    "divided",
    "is_less",
    "is_zero",
    "largest",
    "lookup",
    "modulo",
    "negation",
    "smallest",
]


def modulo(of: Expr, by: Expr, facts: Facts) -> Expr:
    """Return `of` modulo `by` with the sign of `by`; `by` is taken not to be 0."""
    if by.number is not None and abs(by.number) == 1:
        return ZERO
    of = _without_multiples(of, by)
    if at_least(of, ZERO, facts) and below(of, by, facts):
        return of
    if len(by.terms) > 1 and (whole := _whole_sums(of, by, facts)) is not None:
        return of - whole * by
    return variable(Modulo(of, by))


def _without_multiples(of: Expr, by: Expr) -> Expr:
    """Return an expression that differs from `of` by a multiple of `by`."""
    n = by.number
    if n == 0:
        return of
    result = of
    for atom, coefficient in of.linear():
        if isinstance(atom, Modulo) and _divides(by, atom.by):
            result = result + (atom.of - variable(atom)) * coefficient
    if n is not None:
        kept = {m: k % n if not m else k for m, k in result.terms if not m or k % n}
        return Expr.of(kept)
    if len(by.terms) == 1:
        ((factor, k),) = by.terms
        kept = {m: c for m, c in result.terms if not (factor <= m and c % k == 0)}
        return Expr.of(kept)
    return result


def _whole_sums(of: Expr, by: Expr, facts: Facts) -> Expr | None:
    """Return how often a sum goes into `of`, where what is left is certain to be less than it.

    `b * (P + L) + j` holds `P + L` b times where j is below it. As many times as one of its terms
    goes into terms of `of` is tried; None where none of them leaves such a rest.
    """
    for factor, k in by.terms:
        whole = Expr.of({m - factor: c // k for m, c in of.terms if factor <= m and c % k == 0})
        rest = of - whole * by
        if factor and at_least(rest, ZERO, facts) and below(rest, by, facts):
            return whole
    return None


def _divides(by: Expr, other: Expr) -> bool:
    if by == other:
        return True
    a, b = by.number, other.number
    return a is not None and b is not None and a != 0 and b % a == 0


def divided(of: Expr, by: Expr, facts: Facts) -> Expr:
    """Return `of / by` rounded down; `by` is taken to be at least 1."""
    n = by.number
    if n == 0:
        return variable(Quotient(of, by))
    if n is not None:
        # Of the constant, its multiples of n come out as well: (x + 8) / 3 is (x + 2) / 3 + 2.
        whole = Expr.of({m: k // n for m, k in of.terms if not m or k % n == 0})
        rest = Expr.of({m: k if m else k % n for m, k in of.terms if k % n})
    elif len(by.terms) == 1:
        ((factor, k),) = by.terms
        whole = Expr.of({m - factor: c // k for m, c in of.terms if factor <= m and c % k == 0})
        rest = Expr.of({m: c for m, c in of.terms if not (factor <= m and c % k == 0)})
    elif (sums := _whole_sums(of, by, facts)) is not None:
        return sums
    else:
        whole, rest = (ONE, ZERO) if of == by else (ZERO, of)
    if at_least(rest, ZERO, facts) and below(rest, by, facts):
        return whole
    return whole + variable(Quotient(rest, by))


def largest(of: Iterable[Expr], facts: Facts) -> Expr:
    """Return the largest of at least one expression."""
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


def smallest(of: Iterable[Expr], facts: Facts) -> Expr:
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


def lookup(numbers: tuple[int, ...], index: Expr) -> Expr:
    """Return the number at place `index` of a list; `index` is within the list."""
    place = index.number
    if place is not None and 0 <= place < len(numbers):
        return integer(numbers[place])
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
    if all(n == numbers[0] + step * i for i, n in enumerate(numbers)):
        return index * step + numbers[0]
    return variable(Lookup(numbers, index))
