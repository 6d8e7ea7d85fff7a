"""Expressions with other coordinates, or with more known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
from onnx_kvtool.symbolic.bounds import Facts, at_least, below, truths
from onnx_kvtool.symbolic.expression import Expr, integer, variable
from onnx_kvtool.symbolic.forms import choose, divided, is_less, is_zero, largest, lookup, modulo

__all__ = ["as_index", "simplified", "substitute"]


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

    Scatters and gathers fail for every other index, so whoever replaces one of them may use it.
    A choice one side of which is never such an index is replaced by its other side: a guard that
    sends illegal starts outside the cache vanishes.

    Args:
        expr: The index.
        size: Length of the axis that it addresses.
        facts: What else is known, sizes of the coordinates among it.
    """
    expr = simplified(expr, facts)
    while True:
        for atom, coefficient in expr.linear():
            if isinstance(atom, Choice) and coefficient == 1:
                rest = expr - variable(atom)
                yes = facts.given(*truths(atom.condition, True))
                no = facts.given(*truths(atom.condition, False))
                if _never(atom.yes + rest, size, yes):
                    expr = simplified(atom.no + rest, facts)
                    break
                if _never(atom.no + rest, size, no):
                    expr = simplified(atom.yes + rest, facts)
                    break
        else:
            return expr


def _never(index: Expr, size: Expr, facts: Facts) -> bool:
    return at_least(index, size, facts) or below(index, -size, facts)


@dataclass(frozen=True, slots=True)
class _Rebuilding:
    """One pass over an expression; the arguments of `substitute`."""

    coordinates: Mapping[int, Expr]
    atoms: Mapping[Atom, Expr]
    facts: Facts

    def expr(self, expr: Expr) -> Expr:
        result = integer(0)
        for monomial, coefficient in expr.terms:
            term = integer(coefficient)
            for atom, power in monomial:
                one = self.atom(atom)
                for _ in range(power):
                    term = term * one
            result = result + term
        return result

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
                return is_less(parts[0], integer(0), self.facts)
            case IsZero():
                return is_zero(parts[0], self.facts)
            case Choice():
                return choose(parts[0], parts[1], parts[2], self.facts)
