"""To which of two sizes an axis is broadcast.

Kernels of the reference runtime broadcast by code of their own, since they are what inference is
tested against.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from onnx_kvtool.symbolic.atoms import Atom, Dimension, Element, Extent, Largest, Quotient
from onnx_kvtool.symbolic.bounds import Facts, interval
from onnx_kvtool.symbolic.equalities import SizeEqualities
from onnx_kvtool.symbolic.expression import ONE, Expr, integer, variable
from onnx_kvtool.symbolic.forms import largest
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["broadcast_size", "stretched"]

_MOST_CASES = 32
_MOST_SUMMANDS = 3
_LARGEST_SUM = 4
"""Up to this number the ways are tried to make it a sum of sizes."""

_Case = dict[Atom, Expr]


def broadcast_size(a: Expr, b: Expr, equalities: SizeEqualities | None = None) -> Expr | None:
    """Return the size to which two are broadcast in every run that does not fail.

    Args:
        a: A size.
        b: Another one.
        equalities: Which sizes are equal.

    Returns:
        One of the two; None when it depends, or when they are numbers that never meet.
    """
    if a == b or b == ONE:
        return a
    if a == ONE:
        return b
    one, other = (a, b) if equalities is None else map(equalities.resolved, (a, b))
    if one == other or other == ONE:
        return a
    if one == ONE:
        return b
    if one.number is not None and other.number is not None:
        return None
    # A size of 2 or more cannot have been stretched, nor can one of 0.
    for size, bounds in ((a, interval(one, Facts())), (b, interval(other, Facts()))):
        if bounds[0] > 1 or bounds[1] < 1:
            return size
    # An axis of size 0 meets max(1, 0) = 1 and stays 0, so that either order gives the first.
    for size, inner, outer in ((a, one, other), (b, other, one)):
        if outer == largest((ONE, inner), Facts()):
            return size
    found = stretched(one, other)
    return None if found is None else a if found == one else b


@functools.lru_cache(maxsize=4096)
def stretched(a: Expr, b: Expr) -> Expr | None:
    """Return the size to which `a` and `b` are broadcast in every run that does not fail.

    The two are equal or one of them is 1, and the result is the other one. So it is `a` if `b` is 1
    wherever `a` is: `s` and `Min(64, s)` are broadcast to `s`.

    Returns:
        One of the two, the simpler one where both are; None where neither is certain.
    """
    simple, other_one = sorted((a, b), key=lambda size: size.weight)
    for one, other in ((simple, other_one), (other_one, simple)):
        cases = _ways(one, 1)
        if cases is not None and all(_is_one(other, case, one) for case in cases):
            return one
    return None


def _is_one(size: Expr, case: _Case, also: Expr) -> bool:
    """Return whether a size is 1 in a case, or `also`, which should be 1 there, cannot be."""
    low, high = interval(substitute(also, {}, Facts(), case), Facts())
    if not low <= 1 <= high:
        return True  # necessary, and not sufficient
    return interval(substitute(size, {}, Facts(), case), Facts()) == (1, 1)


def _ways(size: Expr, target: int) -> list[_Case] | None:
    """Return values of atoms, one set of which a size must have to be `target`.

    Each way is necessary for its case, and some may not suffice; None where the cases cannot be
    counted up. Sizes are not negative.
    """
    low, high = interval(size, Facts())
    if not low <= target <= high:
        return []
    if size.number is not None:
        return [{}]
    found: list[_Case] = []
    for ways in _solved(size, target):
        if ways is None or len(found) + len(ways) > _MOST_CASES:
            return None
        found += ways
    return found


def _solved(size: Expr, target: int) -> Iterator[list[_Case] | None]:
    constant = sum(k for monomial, k in size.terms if not monomial)
    terms = [(monomial, k) for monomial, k in size.terms if monomial]
    wanted = target - constant
    if len(terms) == 1:
        ((monomial, k),) = terms
        if wanted % k == 0:
            yield _product(sorted(monomial, key=str), wanted // k)
        return
    if len(terms) > _MOST_SUMMANDS or any(k < 0 for _, k in terms) or wanted > _LARGEST_SUM:
        yield None
        return
    parts = [Expr.of({monomial: k}) for monomial, k in terms]
    if any(interval(part, Facts())[0] < 0 for part in parts):
        yield None
        return
    for values in itertools.product(range(wanted + 1), repeat=len(parts)):
        if sum(values) == wanted:
            yield _together([_ways(part, n) for part, n in zip(parts, values, strict=True)])


def _product(factors: list[tuple[Atom, int]], target: int) -> list[_Case] | None:
    """Return how a product of powers can be `target`; 1 where each is 1."""
    if len(factors) == 1 and factors[0][1] == 1:
        return _atom(factors[0][0], target)
    if target != 1 or any(interval(variable(atom), Facts())[0] < 0 for atom, _ in factors):
        return None
    return _together([_atom(atom, 1) for atom, _ in factors])


def _atom(atom: Atom, target: int) -> list[_Case] | None:
    match atom:
        case Dimension() | Extent() | Element():
            return [{atom: integer(target)}]
        case Largest(of):
            ways = [_ways(expr, target) for expr in of]
            return None if None in ways else [case for way in ways for case in way or ()]
        case Quotient(of, by) if by.number is not None and 0 < by.number <= _MOST_CASES:
            first = target * by.number
            ways = [_ways(of, first + i) for i in range(by.number)]
            return None if None in ways else [case for way in ways for case in way or ()]
    return None


def _together(ways: list[list[_Case] | None]) -> list[_Case] | None:
    """Return the cases in which several things hold at once, without those that contradict."""
    cases: list[_Case] = [{}]
    for way in ways:
        if way is None or len(cases) * len(way) > _MOST_CASES:
            return None
        cases = [
            {**case, **more}
            for case in cases
            for more in way
            if all(case.get(atom, value) == value for atom, value in more.items())
        ]
    return cases
