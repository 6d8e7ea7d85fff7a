"""What is certain of the indices of a scatter, against all of them written out."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.analysis.index_facts import IndexFacts, element_index_facts, index_facts
from onnx_kvtool.symbolic.atoms import Dimension, Element
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer, variable
from onnx_kvtool.symbolic.forms import modulo
from onnx_kvtool.symbolic.index_map import IndexMap
from tests.symbolic.index_map.evaluate import World, evaluate

_I, _J = coordinate(0), coordinate(1)
_L, _S = variable(Dimension("L")), variable(Dimension("S"))
_START = variable(Element(ir.Value(name="w", type=ir.TensorType(ir.DataType.INT64)), ()))


def _n(*numbers: int) -> list[Expr]:
    return [integer(n) for n in numbers]


_CASES: dict[str, tuple[list[Expr], list[Expr], list[Expr], Facts, IndexFacts]] = {
    "consecutive rows from 0": ([_I], _n(3), _n(5), Facts(), IndexFacts(False, False, False)),
    "a constant row past the end": (
        [_I + 3],
        _n(3),
        _n(5),
        Facts(),
        IndexFacts(False, True, False),
    ),
    "the last row, counted from the end": (
        _n(-1),
        _n(1),
        _n(8),
        Facts(),
        IndexFacts(True, False, False),
    ),
    "one row written three times": (_n(4), _n(3), _n(8), Facts(), IndexFacts(False, False, True)),
    "an unknown start": ([_START + _I], _n(3), _n(8), Facts(), IndexFacts(None, None, False)),
    "an unknown start, L unknown": (
        [_START + _I],
        [_L],
        [_S],
        Facts(),
        IndexFacts(None, None, None),
    ),
    "an unknown start, L at most S": (
        [_START + _I],
        [_L],
        [_S],
        Facts((), (_S - _L,)),
        IndexFacts(None, None, False),
    ),
    "rows that wrap around": (
        [modulo(_START + _I, integer(8), Facts())],
        _n(3),
        _n(8),
        Facts(),
        IndexFacts(False, False, False),
    ),
    "more rows than the modulus": (
        [modulo(_START + _I, integer(2), Facts())],
        _n(3),
        _n(8),
        Facts(),
        IndexFacts(False, False, None),
    ),
    "tuples": (
        [_I, _START + _J],
        [_L, integer(3)],
        [_L, integer(8)],
        Facts(),
        IndexFacts(None, None, False),
    ),
    "a sum of two coordinates": (
        [_I + _J],
        _n(2, 2),
        _n(8),
        Facts(),
        IndexFacts(False, False, None),
    ),
}


@pytest.mark.parametrize(
    ("components", "shape", "sizes", "facts", "expected"), _CASES.values(), ids=_CASES
)
def test_what_is_certain_is_said(
    components: list[Expr], shape: list[Expr], sizes: list[Expr], facts: Facts, expected: IndexFacts
) -> None:
    assert index_facts(components, shape, sizes, facts) == expected


def test_each_axis_but_the_addressed_one_of_a_scatter_of_elements_is_its_own_coordinate() -> None:
    index = IndexMap.whole(_n(2, 3), ir.DataType.INT64, _START)
    found = element_index_facts(index, _n(2, 8), 1)
    assert found == IndexFacts(None, None, True)
    assert element_index_facts(index, _n(2, 8), 0).duplicate is True


@given(
    components=st.lists(
        st.tuples(st.integers(-2, 3), st.integers(-2, 3), st.integers(-9, 9), st.integers(0, 6)),
        min_size=1,
        max_size=2,
    ),
    shape=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_nothing_false_is_said(
    components: list[tuple[int, int, int, int]], shape: tuple[int, int], sizes: tuple[int, int]
) -> None:
    exprs = [
        modulo(_I * a + _J * b + c, integer(m), Facts()) if m else _I * a + _J * b + c
        for a, b, c, m in components
    ]
    lengths = sizes[: len(exprs)]
    found = index_facts(exprs, _n(*shape), _n(*lengths))
    world = World({}, {})
    tuples = [
        tuple(evaluate(e, at, world) for e in exprs)
        for at in itertools.product(*(range(n) for n in shape))
    ]
    if not tuples:
        return
    if found.negative is not None:
        assert found.negative is any(i < 0 for row in tuples for i in row)
    outside = any(not -n <= i < n for row in tuples for i, n in zip(row, lengths, strict=True))
    if found.out_of_range is not None:
        assert found.out_of_range is outside
    if found.duplicate is not None and not outside:
        places = [tuple(i % n for i, n in zip(row, lengths, strict=True)) for row in tuples]
        assert found.duplicate is (len(set(places)) < len(places))
