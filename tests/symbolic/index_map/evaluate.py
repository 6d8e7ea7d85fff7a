"""What an expression is, for given arrays: the meaning that the analysis is tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnx_kvtool.symbolic.dimensions import read_size
from onnx_kvtool.symbolic.expressions import (
    Choice,
    Coordinate,
    Dimension,
    Element,
    Expr,
    Extent,
    IsNegative,
    IsZero,
    Largest,
    Lookup,
    Modulo,
    Quotient,
    variable,
)


@dataclass(frozen=True, slots=True)
class World:
    """Arrays by the name of the value, and sizes by the name of the dimension."""

    arrays: Mapping[str, Any]
    sizes: Mapping[str, int]

    def array(self, value: ir.Value) -> Any:
        assert value.name is not None
        return self.arrays[value.name]


def evaluate(expr: Expr, at: Sequence[int], world: World) -> int:
    """Return the number that `expr` is at the coordinates `at`."""
    result = 0
    for monomial, coefficient in expr.terms:
        term = coefficient
        for atom, power in monomial:
            term *= _atom(atom, at, world) ** power
        result += term
    return result


def _atom(atom: object, at: Sequence[int], world: World) -> int:
    match atom:
        case Coordinate(axis):
            return at[axis]
        case Dimension(name):
            if name in world.sizes:
                return world.sizes[name]
            formula = read_size(name)  # what inference writes of a size that is computed
            assert formula != variable(Dimension(name)), name
            return evaluate(formula, at, world)
        case Extent(value, axis):
            return int(world.array(value).shape[evaluate(axis, at, world)])
        case Element(value, index):
            place = tuple(evaluate(i, at, world) for i in index)
            assert all(i >= 0 for i in place), "an index that counts from the end"
            return int(world.array(value)[place])
        case Lookup(numbers, index):
            place = evaluate(index, at, world)
            assert place >= 0
            return numbers[place]
        case Modulo(of, by):
            return evaluate(of, at, world) % evaluate(by, at, world)
        case Quotient(of, by):
            return evaluate(of, at, world) // evaluate(by, at, world)
        case Largest(of):
            return max(evaluate(e, at, world) for e in of)
        case IsNegative(of):
            return int(evaluate(of, at, world) < 0)
        case IsZero(of):
            return int(evaluate(of, at, world) == 0)
        case Choice(condition, yes, no):
            return evaluate(yes if evaluate(condition, at, world) else no, at, world)
    raise AssertionError(atom)
