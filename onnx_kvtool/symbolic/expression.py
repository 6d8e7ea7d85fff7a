"""Integer expressions over the coordinates of a value, in a canonical form.

An expression is a polynomial with integer coefficients. Its variables, the atoms, are coordinates,
sizes, elements of values that nothing more is known of, and a few functions of expressions that are
no polynomials: modulo, the larger of two, a choice. Two expressions that are `==` hold the same
number wherever both are defined; two that are not may still be equal.

Integers are unbounded here. What is said of a graph holds as long as no operation of the graph
leaves the range of its element type (see the package's docstring).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir as ir

from onnx_kvtool.symbolic.atoms import Atom, Coordinate, Element, IsNegative, IsZero

__all__ = [
    "ONE",
    "ZERO",
    "Expr",
    "Monomial",
    "coordinate",
    "integer",
    "product",
    "total",
    "variable",
]


Monomial: TypeAlias = "frozenset[tuple[Atom, int]]"
"""A product of atoms: each with its power. The empty one is 1."""

_NO_ATOMS: Monomial = frozenset()


@dataclass(frozen=True, slots=True)
class Expr:
    """A polynomial over atoms with integer coefficients.

    Attributes:
        terms: Each product of atoms with its coefficient, none of them 0.
        axes: Axes whose coordinates occur anywhere inside.
        weight: How many terms and atoms there are inside, a measure of the work it makes.
        number: The value, where the expression is a constant; else None.
    """

    terms: frozenset[tuple[Monomial, int]]
    axes: frozenset[int] = field(compare=False)
    weight: int = field(compare=False)
    number: int | None = field(compare=False)  # asked for far more often than it is made

    @staticmethod
    def of(terms: Mapping[Monomial, int]) -> Expr:
        """Return the sum of products of atoms with the given coefficients."""
        axes: set[int] = set()
        weight = 0
        kept = frozenset((m, k) for m, k in terms.items() if k)
        for monomial, _ in kept:
            weight += 1
            for atom, _ in monomial:
                weight += 1
                if isinstance(atom, Coordinate):
                    axes.add(atom.axis)
                for part in atom.parts:
                    axes |= part.axes
                    weight += part.weight
        constant = terms.get(_NO_ATOMS, 0)
        number = constant if len(kept) == (constant != 0) else None
        return Expr(kept, frozenset(axes), weight, number)

    @property
    def is_vast(self) -> bool:
        """Whether a coefficient is one that no integer type holds."""
        return any(not -(2**63) <= k < 2**64 for _, k in self.terms)

    @property
    def constant(self) -> int:
        """The coefficient of 1."""
        return dict(self.terms).get(_NO_ATOMS, 0)

    @property
    def atom(self) -> Atom | None:
        """The atom, where the expression is one atom and nothing else; else None."""
        if len(self.terms) != 1:
            return None
        ((monomial, coefficient),) = self.terms
        if coefficient != 1 or len(monomial) != 1:
            return None
        ((atom, power),) = monomial
        return atom if power == 1 else None

    def atoms(self) -> Iterator[Atom]:
        """Yield every atom inside, at any depth; the same one perhaps several times."""
        stack = [self]
        while stack:
            for monomial, _ in stack.pop().terms:
                for atom, _ in monomial:
                    yield atom
                    stack.extend(atom.parts)

    def linear(self) -> Iterator[tuple[Atom, int]]:
        """Yield the terms that are one atom to the power of 1, with their coefficients."""
        for monomial, coefficient in self.terms:
            if len(monomial) == 1:
                ((atom, power),) = monomial
                if power == 1:
                    yield atom, coefficient

    def depends_on(self, axis: int) -> bool:
        """Return whether the coordinate along `axis` occurs anywhere inside."""
        return axis in self.axes

    def split(self, axis: int) -> tuple[Expr, Expr] | None:
        """Return (a, b) with `self == a * coordinate(axis) + b` and neither depending on `axis`.

        None where the coordinate occurs in another way, such as inside a modulo.
        """
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        here = (Coordinate(axis), 1)
        for monomial, coefficient in self.terms:
            if here in monomial:
                factor[monomial - {here}] = coefficient
            else:
                rest[monomial] = coefficient
        a, b = Expr.of(factor), Expr.of(rest)
        return None if a.depends_on(axis) or b.depends_on(axis) else (a, b)

    def __add__(self, other: Expr | int) -> Expr:
        return total((self, other))

    __radd__ = __add__

    def __neg__(self) -> Expr:
        number = None if self.number is None else -self.number
        return Expr(frozenset((m, -k) for m, k in self.terms), self.axes, self.weight, number)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + -_expr(other)

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __mul__(self, other: Expr | int) -> Expr:
        terms: dict[Monomial, int] = {}
        for a, j in self.terms:
            for b, k in _expr(other).terms:
                monomial = _times(a, b)
                terms[monomial] = terms.get(monomial, 0) + j * k
        return Expr.of(terms)

    __rmul__ = __mul__

    def __str__(self) -> str:
        from onnx_kvtool.symbolic.words import text

        return text(self)


@functools.lru_cache(maxsize=4096)
def integer(number: int) -> Expr:
    """Return the expression of a number; one object for each."""
    return Expr.of({_NO_ATOMS: int(number)})  # a number of numpy would overflow


ZERO, ONE = integer(0), integer(1)


def variable(atom: Atom) -> Expr:
    """Return the expression that is one atom."""
    return Expr.of({frozenset({(atom, 1)}): 1})


def coordinate(axis: int) -> Expr:
    """Return the expression of the coordinate along `axis`."""
    return variable(Coordinate(axis))


def _expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else integer(value)


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        # A truth value times itself is itself.
        powers[atom] = 1 if _is_truth(atom) else powers.get(atom, 0) + power
    return frozenset(powers.items())


def total(expressions: Iterable[Expr | int]) -> Expr:
    """Return the sum of some expressions; 0 for none."""
    terms: dict[Monomial, int] = {}
    for expression in expressions:
        for monomial, coefficient in _expr(expression).terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
    return Expr.of(terms)


def product(expressions: Iterable[Expr | int]) -> Expr:
    """Return the product of some expressions; 1 for none."""
    result = integer(1)
    for expression in expressions:
        result = result * expression
    return result


def _is_truth(atom: Atom) -> bool:
    """Return whether an atom is 0 or 1 by its nature."""
    if isinstance(atom, Element):
        return atom.value.dtype == ir.DataType.BOOL
    return isinstance(atom, (IsNegative, IsZero))
