"""Quotients of expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, Monomial, integer, variable
from onnx_kvtool.symbolic.forms import divided

__all__ = ["exact_quotient", "quotient"]

_MOST_STEPS = 32
"""Most terms of a quotient that is looked for."""


def exact_quotient(a: Expr, b: Expr) -> Expr | None:
    """Return `a / b` where that is a polynomial; None otherwise, or where `b` is 0."""
    if not b.terms:
        return None
    lead, k = _leading(b)
    result, rest = integer(0), a
    for _ in range(_MOST_STEPS):
        if not rest.terms:
            return result
        head, c = _leading(rest)
        if not _divides(lead, head) or c % k:
            return None
        term = Expr.of({_less(head, lead): c // k})
        result, rest = result + term, rest - term * b
    return None


def quotient(a: Expr, b: Expr) -> Expr:
    """Return `a / b` rounded down, in lowest terms; `b` is taken to be at least 1."""
    exact = exact_quotient(a, b)
    if exact is not None:
        return exact
    k = math.gcd(*(c for _, c in (*a.terms, *b.terms)))
    shared = Expr.of({_common((*a.terms, *b.terms)): k})
    numerator, denominator = exact_quotient(a, shared), exact_quotient(b, shared)
    if numerator is None or denominator is None:
        return divided(a, b, Facts())
    return divided(numerator, denominator, Facts())


def _common(terms: Sequence[tuple[Monomial, int]]) -> Monomial:
    """Return the atoms, with their powers, that every term has."""
    powers = [dict(monomial) for monomial, _ in terms]
    shared = set(powers[0]).intersection(*powers[1:])
    return frozenset((atom, min(p[atom] for p in powers)) for atom in shared)


def _leading(size: Expr) -> tuple[Monomial, int]:
    """Return the first term in an order that products respect: by degree, then by names."""
    return max(size.terms, key=lambda term: (_degree(term[0]), _order(term[0])))


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _order(monomial: Monomial) -> list[tuple[tuple[int, ...], int]]:
    """Return a key that is the greater, the higher the power of the first name that differs."""
    named = sorted((str(variable(atom)), power) for atom, power in monomial)
    return [((*(-ord(letter) for letter in name), 1), power) for name, power in named]


def _divides(a: Monomial, b: Monomial) -> bool:
    powers = dict(b)
    return all(powers.get(atom, 0) >= power for atom, power in a)


def _less(a: Monomial, b: Monomial) -> Monomial:
    """Return the monomial `a / b`, of which `b` is a part."""
    powers = dict(a)
    for atom, power in b:
        powers[atom] -= power
    return frozenset((atom, power) for atom, power in powers.items() if power)
