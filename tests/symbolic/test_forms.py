"""Simplified expressions mean what was written, for every size, coordinate and element."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.kernels.movement.slicing import slice_1
from onnx_kvtool.symbolic.expressions import Dimension, Element, Expr, coordinate, integer, variable
from onnx_kvtool.symbolic.rules.slicing import cut_along
from onnx_kvtool.symbolic.simplification import (
    Facts,
    as_index,
    choose,
    divided,
    interval,
    is_less,
    is_zero,
    largest,
    lookup,
    modulo,
    negation,
    simplified,
    smallest,
    substitute,
)
from tests.grids import search
from tests.symbolic.index_map.evaluate import World, evaluate

_W = variable(Element(ir.Value(name="w", type=ir.TensorType(ir.DataType.INT64)), ()))
_L, _S = variable(Dimension("L")), variable(Dimension("S"))
# Axis 0 has the symbolic size L, axis 1 the symbolic size S, axis 2 the size 3.
_SIZES = (_L, _S, integer(3))


@dataclass(frozen=True, slots=True)
class _Place:
    """One assignment of numbers to everything that an expression may refer to."""

    length: int
    capacity: int
    start: int
    at: tuple[int, int, int]

    @property
    def world(self) -> World:
        sizes = {"L": self.length, "S": self.capacity}
        return World({"w": np.asarray(self.start)}, sizes)


_Meaning = Callable[[_Place], int]
_Written = tuple[Expr, _Meaning]


def _places(known: str) -> list[_Place]:
    found = []
    for length, capacity, start in itertools.product((1, 2, 3), (1, 2, 4), (-4, -1, 0, 1, 3, 5)):
        if known == "start" and start < 0:
            continue
        if known == "fits" and length > capacity:
            continue
        corners = itertools.product({0, length - 1}, {0, capacity - 1}, range(3))
        found += [_Place(length, capacity, start, at) for at in corners]
    return found


_KNOWN: dict[str, tuple[Expr, ...]] = {"nothing": (), "start": (_W,), "fits": (_S - _L,)}

_LEAVES: list[_Written] = [
    (_W, lambda p: p.start),
    (_W, lambda p: p.start),
    (_L, lambda p: p.length),
    (_S, lambda p: p.capacity),
    (coordinate(0), lambda p: p.at[0]),
    (coordinate(1), lambda p: p.at[1]),
    (coordinate(2), lambda p: p.at[2]),
    (lookup((4, -1, 2), coordinate(2)), lambda p: (4, -1, 2)[p.at[2]]),
]


def _written(data: st.DataObject, depth: int, facts: Facts) -> _Written:
    """Draw an expression together with what it means."""
    if depth == 0 or data.draw(st.integers(0, 4)) == 0:
        number = data.draw(st.integers(-3, 5))
        constant: _Written = (integer(number), lambda p: number)
        return data.draw(st.sampled_from([*_LEAVES, constant]))
    a, mean_a = _written(data, depth - 1, facts)
    b, mean_b = _written(data, depth - 1, facts)
    kind = data.draw(
        st.sampled_from(
            ["+", "-", "*", "max", "min", "mod", "div", "rows", "if", "wrap", "guard", "last"]
        )
    )
    n = data.draw(st.integers(1, 4))
    zero = integer(0)
    match kind:
        case "+":
            return a + b, lambda p: mean_a(p) + mean_b(p)
        case "-":
            return a - b, lambda p: mean_a(p) - mean_b(p)
        case "*":
            return a * n, lambda p: mean_a(p) * n
        case "max":
            return largest((a, b), facts), lambda p: max(mean_a(p), mean_b(p))
        case "min":
            return smallest((a, b), facts), lambda p: min(mean_a(p), mean_b(p))
        case "mod" if data.draw(st.booleans()):
            return modulo(a, _S, facts), lambda p: mean_a(p) % p.capacity
        case "mod":
            return modulo(a, integer(n), facts), lambda p: mean_a(p) % n
        case "div":
            return divided(a, integer(n), facts), lambda p: mean_a(p) // n
        case "rows":  # a flat index, taken apart by a size that is a sum
            width = _L + _S + n
            flat = a * width + b if data.draw(st.booleans()) else coordinate(2) * width + a

            def place(p: _Place) -> int:
                return evaluate(flat, p.at, p.world)

            if data.draw(st.booleans()):
                return modulo(flat, width, facts), lambda p: place(p) % (p.length + p.capacity + n)
            return divided(flat, width, facts), lambda p: place(p) // (p.length + p.capacity + n)
        case "wrap":
            wrapped = choose(is_less(a, zero, facts), a + _S, a, facts)
            return wrapped, lambda p: mean_a(p) + p.capacity if mean_a(p) < 0 else mean_a(p)
        case "last":  # the start of the last so many, which is 0 where there is none of them
            size = largest((a, zero), facts)
            some = is_less(-size, zero, facts)
            whole: _Written = (b, mean_b)
            part: _Written = (b - size, lambda p: mean_b(p) - max(mean_a(p), 0))
            one, other = (whole, part) if data.draw(st.booleans()) else (part, whole)
            chosen = choose(some, one[0], other[0], facts)
            if data.draw(st.booleans()):
                chosen = choose(negation(some), other[0], one[0], facts)
            return chosen, lambda p: (one if mean_a(p) > 0 else other)[1](p)
        case "guard":
            inside = is_zero(modulo(a, integer(n), facts) - a, facts)
            guarded = choose(inside, a, b, facts)
            return guarded, lambda p: mean_a(p) if 0 <= mean_a(p) < n else mean_b(p)
        case _:
            c, mean_c = _written(data, depth - 1, facts)
            condition, holds = _condition(data, a, mean_a, c, mean_c, facts)
            return choose(condition, a, b, facts), lambda p: (mean_a if holds(p) else mean_b)(p)


def _condition(
    data: st.DataObject, a: Expr, mean_a: _Meaning, b: Expr, mean_b: _Meaning, facts: Facts
) -> tuple[Expr, Callable[[_Place], bool]]:
    match data.draw(st.sampled_from(["<", ">=", "==", "!="])):
        case "<":
            return is_less(a, b, facts), lambda p: mean_a(p) < mean_b(p)
        case ">=":
            return negation(is_less(a, b, facts)), lambda p: mean_a(p) >= mean_b(p)
        case "==":
            return is_zero(a - b, facts), lambda p: mean_a(p) == mean_b(p)
        case _:
            return negation(is_zero(a - b, facts)), lambda p: mean_a(p) != mean_b(p)


@search(300)
@given(data=st.data(), known=st.sampled_from(sorted(_KNOWN)))
def test_a_simplified_expression_means_what_was_written(data: st.DataObject, known: str) -> None:
    facts = Facts(_SIZES, _KNOWN[known])
    expr, mean = _written(data, 3, Facts(_SIZES))
    again = simplified(expr, facts)
    low, high = interval(expr, facts)
    size = data.draw(st.sampled_from([_S, _L, integer(2)]))
    index = as_index(expr, size, facts)
    swapped = substitute(expr, {0: coordinate(1), 1: coordinate(0)}, Facts((_S, _L, integer(3))))
    for place in _places(known):
        meant, world = mean(place), place.world
        assert evaluate(expr, place.at, world) == meant
        assert evaluate(again, place.at, world) == meant
        assert low <= meant <= high
        one, other, last = place.at
        assert evaluate(swapped, (other, one, last), world) == meant
        n = evaluate(size, place.at, world)
        if -n <= meant < n:
            assert evaluate(index, place.at, world) == meant


@given(data=st.data())
def test_equal_expressions_written_in_two_ways_are_equal(data: st.DataObject) -> None:
    facts = Facts(_SIZES)
    (a, _), (b, _), (c, _) = (_written(data, 2, facts) for _ in range(3))
    assert (a + b) * c == c * b + a * c
    assert a - (b - c) == a + c - b
    assert hash(a + b) == hash(b + a)


@pytest.mark.long
@pytest.mark.parametrize("step", [-3, -2, -1, 1, 2, 3])
def test_a_cut_takes_what_slice_takes(step: int) -> None:
    ends = (-(2**63), -7, -3, -1, 0, 1, 3, 6, 2**63 - 1)
    for start, end in itertools.product(ends, ends):
        symbolic = cut_along(variable(Dimension("n")), integer(start), integer(end), step)
        for size in range(5):
            data, bounds = np.arange(size), (np.array([start]), np.array([end]))
            taken = slice_1(data, *bounds, steps=np.array([step]))
            bound = {Dimension("n"): integer(size)}
            for cut in (cut_along(integer(size), integer(start), integer(end), step), symbolic):
                assert cut is not None and cut.length is not None
                length = substitute(cut.length, {}, Facts(), bound).number
                offset = substitute(cut.offset, {}, Facts(), bound).number
                assert length == len(taken), (size, start, end)
                assert not length or offset == taken[0], (size, start, end)
