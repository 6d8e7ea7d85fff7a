"""Sizes as text, and their quotients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.symbolic.dimensions import exact_quotient, quotient, read_size, words
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.simplification import (
    Facts,
    divided,
    largest,
    modulo,
    smallest,
)
from tests.grids import each
from tests.shapes.agreement import size_at

_FACTS = Facts()


@each(
    ("text", "normal"),
    [
        pytest.param("past + seq", "past + seq", id="a sum"),
        pytest.param(" seq+past ", "seq+past", id="a text without spaces is one name"),
        pytest.param("batch-size", "batch-size", id="a hyphen is part of a name"),
        pytest.param("s6 - Min(16, s6) + 16", "s6 + 16 - Min(16, s6)", id="a minimum"),
        pytest.param("Max(1, s6 - 4)", "Max(1, s6 - 4)", id="a maximum"),
        pytest.param("2*a*b - 3", "2 * a * b - 3", id="a product"),
        pytest.param("(a + 9) // 2", "((a + 1) // 2) + 4", id="a floor division"),
        pytest.param("(a + 9) % 4", "((a + 1) % 4)", id="a remainder"),
        pytest.param("1 + s6", "s6 + 1", id="a number behind a name"),
        pytest.param("b * (a + 1)", "a * b + b", id="a product of a sum"),
        pytest.param("a - a", "0", id="nothing"),
        pytest.param("n // 2 + 0", "(n // 2)", id="a floor division and nothing"),
        pytest.param("floor(a/2 + 1/2)", "((a + 1) // 2)", id="a floor of fractions"),
        pytest.param("ceiling(a/4)", "((a + 3) // 4)", id="a ceiling"),
        pytest.param("ceiling(a/b)", "((a - 1) // b) + 1", id="a ceiling of names"),
        pytest.param("(a + 1)**2", "2 * a + a * a + 1", id="a power"),
        pytest.param("a*b/b", "a", id="a quotient that is an integer"),
        pytest.param("a / 2", "a / 2", id="what is perhaps no integer is one name"),
        pytest.param("a ** 9", "a ** 9", id="a high power is one name"),
        pytest.param("-3", "-3", id="a negative number is one name"),
        pytest.param("Mod(a)", "Mod(a)", id="a function of other arguments is one name"),
        pytest.param("(((", "(((", id="brackets are one name"),
        pytest.param("a // 0", "a // 0", id="a division by zero is one name"),
        pytest.param("a if b else c", "a if b else c", id="prose is one name"),
        pytest.param("ﬁ", "ﬁ", id="letters outside ASCII stay as they are"),
    ],
)
def test_a_text_has_a_normal_form(text: str, normal: str) -> None:
    assert words(read_size(text)) == normal
    assert read_size(normal) == read_size(text)


def sizes() -> st.SearchStrategy[Expr]:
    atoms = st.one_of(st.sampled_from("abc").map(read_size), st.integers(0, 5).map(integer))
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
            st.tuples(inner, st.integers(1, 4)).map(
                lambda pair: divided(pair[0], integer(pair[1]), _FACTS)
            ),
            st.tuples(inner, st.integers(1, 4)).map(
                lambda pair: modulo(pair[0], integer(pair[1]), _FACTS)
            ),
            st.tuples(inner, inner).map(lambda pair: largest(pair, _FACTS)),
            st.tuples(inner, inner).map(lambda pair: smallest(pair, _FACTS)),
        ),
        max_leaves=5,
    )


def test_sums_are_not_multiplied_out_without_end() -> None:
    text = " * ".join(f"(a{i} + b)" for i in range(18))
    assert words(read_size(text)) == text


NUMBERS = st.fixed_dictionaries({name: st.integers(0, 9) for name in "abc"})


@given(sizes(), NUMBERS)
def test_what_is_written_is_read_back(size: Expr, numbers: dict[str, int]) -> None:
    text = words(size)
    assert text is not None
    assert words(read_size(text)) == text
    assert size_at(read_size(text), numbers) == size_at(size, numbers)


@given(sizes(), sizes(), NUMBERS)
def test_a_quotient_is_rounded_down(a: Expr, b: Expr, numbers: dict[str, int]) -> None:
    of, by = size_at(a, numbers), size_at(b, numbers)
    assert of is not None and by is not None
    if by >= 1 and b.terms:
        assert size_at(quotient(a, b), numbers) == of // by


@given(sizes(), sizes())
def test_a_product_can_be_divided_again(a: Expr, b: Expr) -> None:
    if b.terms and len(a.terms) * len(b.terms) < 16:
        assert exact_quotient(a * b, b) == a


def test_nothing_is_divided_by_zero() -> None:
    assert exact_quotient(integer(3), integer(0)) is None
