"""Integer expressions over coordinates and sizes, in a canonical form."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import onnx_ir as ir

# The variables of an expression.


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The coordinate along an axis of the value that is described, counted from 0."""

    axis: int
    parts: ClassVar[Exprs] = ()


@dataclass(frozen=True, slots=True)
class Dimension:
    """A symbolic dimension, by its name; one name stands for one size in a whole graph."""

    name: str
    parts: ClassVar[Exprs] = ()


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of `value` along `axis`, where it has no name; `axis` is an expression."""

    value: ir.Value
    axis: Expr

    def __repr__(self) -> str:
        """Name the value: its own form reads a constant to show it."""
        return f"Extent({self.value.name!r}, {self.axis})"

    @property
    def parts(self) -> Exprs:
        """The expressions inside."""
        return (self.axis,)


@dataclass(frozen=True, slots=True)
class Element:
    """The element of `value` at `index`, about which nothing more is known.

    `Element(w, (coordinate(0),))` is a number per batch row, `Element(p, (integer(0),))` or
    `Element(p, ())` one number, `Element(p, (coordinate(2),))` a free position per row.
    """

    value: ir.Value
    index: Exprs

    def __repr__(self) -> str:
        """Name the value: its own form reads a constant to show it."""
        return f"Element({self.value.name!r}, {self.index})"

    @property
    def parts(self) -> Exprs:
        """The expressions inside."""
        return self.index


@dataclass(frozen=True, slots=True)
class Lookup:
    """The number at place `index` of a list of constants; `index` is within the list."""

    numbers: tuple[int, ...]
    index: Expr

    @property
    def parts(self) -> Exprs:
        """The expressions inside."""
        return (self.index,)


@dataclass(frozen=True, slots=True)
class _OfTwo:
    of: Expr
    by: Expr

    @property
    def parts(self) -> Exprs:
        """The expressions inside."""
        return (self.of, self.by)


class Modulo(_OfTwo):
    """`of` modulo `by`, with the sign of `by`, as Mod with `fmod=0`."""

    __slots__ = ()


class Quotient(_OfTwo):
    """`of` divided by `by` and rounded down."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest of some expressions. The smallest is minus the largest of the negated ones."""

    of: frozenset[Expr]

    @property
    def parts(self) -> Exprs:
        """The expressions inside."""
        return tuple(self.of)


@dataclass(frozen=True, slots=True)
class _Truth:
    of: Expr

    @property
    def parts(self) -> Exprs:
        """The expressions inside."""
        return (self.of,)


class IsNegative(_Truth):
    """1 where `of` is below zero, else 0."""

    __slots__ = ()


class IsZero(_Truth):
    """1 where `of` is zero, else 0."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """`yes` where `condition` (0 or 1) is 1, else `no`."""

    condition: Expr
    yes: Expr
    no: Expr

    @property
    def parts(self) -> Exprs:
        """The expressions inside."""
        return (self.condition, self.yes, self.no)


Atom: TypeAlias = (
    Coordinate
    | Dimension
    | Extent
    | Element
    | Lookup
    | Modulo
    | Quotient
    | Largest
    | IsNegative
    | IsZero
    | Choice
)
"""Each has `parts`: the expressions inside."""


# Integer expressions over the coordinates of a value, in a canonical form.
#
# An expression is a polynomial with integer coefficients. Its variables, the atoms, are
# coordinates, sizes, opaque elements of values, and a few functions of expressions that are no
# polynomials: modulo, the larger of two, a choice. Two expressions that are `==` have the same
# number wherever both are defined; two that are not may still be equal.
#
# Integers are unbounded here. Statements about a graph hold if no operation of the graph leaves the
# range of its element type (see `index_maps`).


Monomial: TypeAlias = "frozenset[tuple[Atom, int]]"
"""A product of atoms: each with its power. The empty one is 1."""

_NO_ATOMS: Monomial = frozenset()
_NO_AXES: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Expr:
    """A polynomial over atoms with integer coefficients.

    Attributes:
        terms: Each product of atoms with its coefficient, none of them 0.
        axes: Axes whose coordinates occur anywhere inside.
        weight: How many terms and atoms there are inside, a measure of the work with it.
        number: The value, where the expression is a constant; else None.
    """

    terms: frozenset[tuple[Monomial, int]]
    axes: frozenset[int] = field(compare=False)
    weight: int = field(compare=False)
    number: int | None = field(compare=False)  # asked for far more often than it is made

    @staticmethod
    def of(terms: Mapping[Monomial, int]) -> Expr:
        """Return the sum of products of atoms with the given coefficients."""
        axes = _NO_AXES
        kept = frozenset([term for term in terms.items() if term[1]])
        weight = len(kept)
        for monomial, _ in kept:
            weight += len(monomial)
            for atom, _ in monomial:
                if isinstance(atom, Coordinate):
                    axes |= {atom.axis}
                for part in atom.parts:
                    axes |= part.axes
                    weight += part.weight
        constant = terms.get(_NO_ATOMS, 0)
        number = constant if len(kept) == (constant != 0) else None
        return Expr(kept, axes, weight, number)

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

    def ordered(self) -> list[tuple[list[tuple[Atom, int]], int]]:
        """Return the terms, atoms with powers and a coefficient, in the order of their texts.

        Nodes are written in this order. That of a set differs from run to run, because values hash
        by their address.
        """
        terms = sorted(self.terms, key=lambda term: _term(term[0], term[1], None))
        return [(sorted(m, key=lambda factor: _atom(factor[0], None)), k) for m, k in terms]

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
        other = _expr(other)
        if not self.terms or not other.terms:  # most sums that are asked for have a 0
            return self if self.terms else other
        if self.number is not None and other.number is not None:
            return integer(self.number + other.number)
        return total((self, other))

    __radd__ = __add__

    def __neg__(self) -> Expr:
        if self.number is not None:
            return integer(-self.number)
        return Expr(frozenset([(m, -k) for m, k in self.terms]), self.axes, self.weight, None)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + -_expr(other)

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __mul__(self, other: Expr | int) -> Expr:
        other = _expr(other)
        if self.number == 1 or other.number == 1:
            return self if other.number == 1 else other
        if self.number is not None and other.number is not None:
            return integer(self.number * other.number)
        terms: dict[Monomial, int] = {}
        for a, j in self.terms:
            for b, k in other.terms:
                monomial = _times(a, b)
                terms[monomial] = terms.get(monomial, 0) + j * k
        return Expr.of(terms)

    __rmul__ = __mul__

    def __str__(self) -> str:
        return text(self)


Exprs = tuple[Expr, ...]
"""Some expressions: the elements of a vector, or the sizes of a shape."""


@functools.lru_cache(maxsize=4096)
def integer(number: int) -> Expr:
    """Return the expression of a number; one object for each."""
    return Expr.of({_NO_ATOMS: int(number)})  # a number of numpy would overflow


ZERO, ONE = integer(0), integer(1)


def variable(atom: Atom) -> Expr:
    """Return the expression that is one atom."""
    return Expr.of({frozenset(((atom, 1),)): 1})


@functools.cache
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
    result = ONE
    for expression in expressions:
        result = result * expression
    return result


def _is_truth(atom: Atom) -> bool:
    """Return whether an atom is 0 or 1 by its nature."""
    if isinstance(atom, Element):
        return atom.value.dtype == ir.DataType.BOOL
    return isinstance(atom, _Truth)


# Expressions in words, for proofs and refusals.


_LETTERS = "ijklmnpqr"


def text(expr: Expr, names: Mapping[int, str] | None = None) -> str:
    """Return an expression as it would be written: `start[b] + s`.

    `names` are those of coordinates, by default i, j, k, ... Terms are in the order of their texts.
    """
    words = [(_term(m, abs(k), names), k < 0) for m, k in expr.terms if m]
    # Names before numbers before negative terms: `w[b] + s - 1`.
    words.sort(key=lambda word: (word[1], -len(word[0].split("[")), word[0]))
    constant = expr.constant
    if constant or not words:
        words.append((str(abs(constant)), constant < 0))
    first, negative = words[0]
    pieces = [f"-{first}" if negative else first]
    pieces += [f"{'-' if below else '+'} {word}" for word, below in words[1:]]
    return " ".join(pieces)


def _term(monomial: Monomial, coefficient: int, names: Mapping[int, str] | None) -> str:
    factors = sorted(
        _atom(atom, names) if power == 1 else f"{_atom(atom, names)}^{power}"
        for atom, power in monomial
    )
    return " * ".join([str(coefficient)] * (coefficient != 1) + factors)


def _atom(atom: Atom, names: Mapping[int, str] | None) -> str:
    match atom:
        case Coordinate(axis):
            letter = _LETTERS[axis] if axis < len(_LETTERS) else f"i{axis}"
            return letter if names is None else names.get(axis, letter)
        case Dimension(name):
            return name if name.isidentifier() else f"({name})"
        case Extent(value, axis):
            return f"size({_name(value)}, {text(axis, names)})"
        case Element(value, ()):
            return _name(value)
        case Element(value, index):
            return f"{_name(value)}[{', '.join(text(i, names) for i in index)}]"
        case Lookup(numbers, index):
            shown = ", ".join(map(str, numbers[:6])) + (", ..." if len(numbers) > 6 else "")
            return f"[{shown}][{text(index, names)}]"
        case Modulo(of, by):
            return f"mod({text(of, names)}, {text(by, names)})"
        case Quotient(of, by):
            return f"div({text(of, names)}, {text(by, names)})"
        case Largest(of):
            return f"max({', '.join(sorted(text(e, names) for e in of))})"
        case IsNegative(of):
            return f"({text(of, names)} < 0)"
        case IsZero(of):
            return f"({text(of, names)} == 0)"
        case Choice(condition, yes, no):
            return f"if({text(condition, names)}, {text(yes, names)}, {text(no, names)})"


def _name(value: ir.Value) -> str:
    return value.name or "an unnamed value"
