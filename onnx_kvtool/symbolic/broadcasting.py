"""The size that each axis is broadcast to, and which sizes are equal."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.symbolic.dimensions import HEAVIEST, Dim, normal, words
from onnx_kvtool.symbolic.expressions import (
    ONE,
    Atom,
    Dimension,
    Element,
    Expr,
    Extent,
    Largest,
    Quotient,
    integer,
    variable,
)
from onnx_kvtool.symbolic.simplification import Facts, interval, largest, substitute

# Equal sizes: those that the operators of a model require, or that a user grants.


@dataclass(frozen=True, slots=True)
class Equality(Record):
    """Two texts that stand for one size.

    Attributes:
        name: A name, or an expression over names.
        equals: Another name or expression, or a number.
        location: The value whose size it is, and the node that demands it.
        why: The requirement, as text.
    """

    name: str
    equals: str
    location: Location
    why: str

    JSON = (
        "name",
        "equals",
        Key("location", parts=("value", "node", "index", "op", "graph")),
        "why",
    )


class SizeEqualities:
    """The sizes that are equal in every run that does not fail.

    A run fails if an operator gets sizes that it does not allow. So the requirements of operators
    hold for the sizes of every output.

    Args:
        granted: Pairs of dimensions that are equal, such as `--assume same-dim:A=B` grants.

    Raises:
        ValueError: If two sizes become equal that cannot be, or a pair has a dimension that is
            None.
    """

    def __init__(self, granted: Iterable[tuple[Dim, Dim]] = ()) -> None:
        self._meaning: dict[Atom, Expr] = {}
        self._found: dict[tuple[str, str], Equality] = {}
        for a, b in granted:
            one, other = self.of_dim(a), self.of_dim(b)
            if one is None or other is None:
                raise ValueError(f"an unknown dimension cannot be {a or b}")
            if not self._unite(one, other):
                raise ValueError(f"`{a}` and `{b}` would make {one} equal to {other}")

    def __iter__(self) -> Iterator[Equality]:
        """Yield the equalities between names, in the order of their discovery."""
        return iter(self._found.values())

    @property
    def learned(self) -> int:
        """How many atoms stand for something else; it grows with each size that is equated."""
        return len(self._meaning)

    def of_dim(self, dim: Dim) -> Expr | None:
        """Return the one expression of all dimensions that are equal to `dim`; None stays None.

        That is a number if there is one, else the first name. An expression counts as one name in
        its normal form: `s6 + 1` and `1 + s6` are one size. That it is the sum of `s6` and 1 is
        not used: only the exporter says so.
        """
        known = normal(dim) if isinstance(dim, str) else dim
        if known is None:
            return None
        if isinstance(known, int):
            return integer(known)
        return self.resolved(variable(Dimension(known)))

    def same(self, a: Expr, b: Expr) -> bool:
        """Return whether two sizes are certainly equal."""
        return a == b or (bool(self._meaning) and self.resolved(a) == self.resolved(b))

    def differ(self, a: Expr, b: Expr) -> bool:
        """Return whether two sizes are certainly different."""
        if a == b:
            return False
        low, high = interval(self.resolved(a) - self.resolved(b))
        return low > 0 or high < 0

    def resolved(self, size: Expr, *, unnamed_only: bool = False) -> Expr:
        """Return a size with each atom that equals something else replaced.

        `unnamed_only`: names stay.
        """
        if not self._meaning:
            return size
        for _ in range(len(self._meaning) + 1):
            known = {
                atom: self._meaning[atom]
                for atom in size.atoms()
                if atom in self._meaning and not (unnamed_only and isinstance(atom, Dimension))
            }
            if not known or size.weight > HEAVIEST:
                break
            size = substitute(size, {}, Facts(), known)
        return size

    def equate(self, a: Expr, b: Expr, location: Location, why: str) -> bool:
        """Learn that two sizes are equal; return False if they cannot be."""
        if self.same(a, b):
            return True
        if not self._unite(self.resolved(a), self.resolved(b)):
            return False
        self.note(a, b, location, why)
        return True

    def note(self, a: Expr, b: Expr, location: Location, why: str) -> None:
        """Remember, for the report only, that two texts stand for one size."""
        left, right = words(a), words(b)
        if left is None or right is None or left == right:
            return
        if a.number is not None:
            left, right = right, left
        self._found.setdefault((left, right), Equality(left, right, location, why))

    def _unite(self, one: Expr, other: Expr) -> bool:
        """Learn that two resolved sizes are equal; return False if they cannot be."""
        difference = one - other
        low, high = interval(difference)
        if low > 0 or high < 0:
            return False
        # Replace an atom of the two by the rest, preferably a size without a name. Common terms
        # cancel: if `a + n` is `b + n`, `a` is `b`.
        one = Expr.of({m: k for m, k in difference.terms if k > 0})
        other = Expr.of({m: -k for m, k in difference.terms if k < 0})
        kinds = (Extent, Element, Dimension)
        choices = [
            (kinds.index(type(atom)), atom, rest)
            for expr, rest in ((other, one), (one, other))
            if isinstance(atom := expr.atom, kinds) and atom not in set(rest.atoms())
        ]
        if choices:
            _, atom, rest = min(choices, key=lambda choice: choice[0])
            self._meaning[atom] = rest
        return True


# The broadcast of two sizes.
#
# Kernels of the reference runtime have their own code for it, because inference is tested against
# them.


_MOST_CASES = 32
_MOST_SUMMANDS = 3
_LARGEST_SUM = 4
"""Largest number whose splits into a sum of sizes are tried."""

_Case = dict[Atom, Expr]


def broadcast_size(a: Expr, b: Expr, equalities: SizeEqualities) -> Expr | None:
    """Return the broadcast of two sizes in every run that does not fail.

    Returns:
        One of the two; None when it depends, or when they are numbers that never meet.
    """
    if a == b or b == ONE:
        return a
    if a == ONE:
        return b
    one, other = map(equalities.resolved, (a, b))
    if one == other or other == ONE:
        return a
    if one == ONE:
        return b
    if one.number is not None and other.number is not None:
        return None
    # A size of 2 or more cannot have been stretched, nor can one of 0.
    for size, bounds in ((a, interval(one)), (b, interval(other))):
        if bounds[0] > 1 or bounds[1] < 1:
            return size
    # An axis of size 0 meets max(1, 0) = 1 and stays 0, so that either order gives the first.
    for size, inner, outer in ((a, one, other), (b, other, one)):
        if outer == largest((ONE, inner)):
            return size
    found = stretched(one, other)
    return None if found is None else a if found == one else b


@functools.lru_cache(maxsize=4096)
def stretched(a: Expr, b: Expr) -> Expr | None:
    """Return the broadcast of `a` and `b` in every run that does not fail.

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
    low, high = interval(substitute(also, {}, Facts(), case))
    if not low <= 1 <= high:
        return True  # necessary, and not sufficient
    return interval(substitute(size, {}, Facts(), case)) == (1, 1)


def _ways(size: Expr, target: int) -> list[_Case] | None:
    """Return the assignments of symbols that make a size equal to `target`.

    An assignment may not suffice for its case, but one of them is necessary. None if they cannot be
    listed. Sizes are not negative.
    """
    low, high = interval(size)
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
    if any(interval(part)[0] < 0 for part in parts):
        yield None
        return
    for values in itertools.product(range(wanted + 1), repeat=len(parts)):
        if sum(values) == wanted:
            yield _together([_ways(part, n) for part, n in zip(parts, values, strict=True)])


def _product(factors: list[tuple[Atom, int]], target: int) -> list[_Case] | None:
    """Return how a product of powers can be `target`; 1 where each is 1."""
    if len(factors) == 1 and factors[0][1] == 1:
        return _atom(factors[0][0], target)
    if target != 1 or any(interval(variable(atom))[0] < 0 for atom, _ in factors):
        return None
    return _together([_atom(atom, 1) for atom, _ in factors])


def _atom(atom: Atom, target: int) -> list[_Case] | None:
    match atom:
        case Dimension() | Extent() | Element():
            return [{atom: integer(target)}]
        case Largest(of):
            ways = [_ways(expr, target) for expr in of]
        case Quotient(of, by) if by.number is not None and 0 < by.number <= _MOST_CASES:
            ways = [_ways(of, target * by.number + i) for i in range(by.number)]
        case _:
            return None
    return None if None in ways else [case for way in ways for case in way or ()]


def _together(ways: list[list[_Case] | None]) -> list[_Case] | None:
    """Return the combinations of cases, without contradictory ones."""
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
