"""Sizes computed from the text of symbolic dimensions."""

from __future__ import annotations

import warnings

import pytest

from onnx_kvtool.symbolic.dimensions import evaluate, names_in
from tests.grids import each

SIZES = {"a": 7, "b": 3, "s6": 5, "u0": 2, "past_sequence_len": 11, "sequence_len": 4}


@each(
    ("text", "names", "size"),
    [
        pytest.param("a", ("a",), 7, id="a name"),
        pytest.param(
            "past_sequence_len + sequence_len",
            ("past_sequence_len", "sequence_len"),
            15,
            id="a sum as mobius writes it",
        ),
        pytest.param("-s6 - u0 + 16", ("s6", "u0"), 9, id="a difference as torch writes it"),
        pytest.param("s6 - Min(16, s6) + 16", ("s6",), 16, id="a minimum as torch writes it"),
        pytest.param("Max(1, a, b)", ("a", "b"), 7, id="a maximum of three"),
        pytest.param("2*a", ("a",), 14, id="a product"),
        pytest.param("(a + 1)//b", ("a", "b"), 2, id="a quotient"),
        pytest.param("a % b", ("a", "b"), 1, id="a remainder"),
        pytest.param("b - a", ("b", "a"), -4, id="a negative size is the caller's to refuse"),
        pytest.param("3", (), 3, id="a number as text"),
    ],
)
def test_expressions_are_computed(text: str, names: tuple[str, ...], size: int) -> None:
    assert names_in(text) == names
    assert evaluate(text, SIZES) == size


@each(
    "text",
    [
        pytest.param("batch-size", id="a hyphen"),
        pytest.param("Concatpresent.0.key_dim_2", id="dots and digits"),
        pytest.param("a.b", id="dots"),
        pytest.param("", id="nothing"),
        pytest.param("a / b", id="a true quotient"),
        pytest.param("a ** b", id="a power of a name"),
        pytest.param("Pow(a, b)", id="another function"),
        pytest.param("Min()", id="a minimum of nothing"),
        pytest.param("__import__('os')", id="a call that would do harm"),
        pytest.param("[a for a in b]", id="a comprehension"),
        pytest.param("a if b else 1", id="a condition"),
        pytest.param("lambda", id="a keyword"),
        pytest.param("1is 1", id="what Python would warn of"),
        pytest.param("a +", id="an unfinished sum"),
        pytest.param("ﬁ", id="a letter that Python folds into two"),
        pytest.param("a" * 201, id="a text that is too long"),
        pytest.param("(" * 150 + "a" + ")" * 40, id="brackets that do not close"),
        pytest.param("\0", id="a null character"),
    ],
)
def test_any_other_text_is_one_name(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names_in(text) == (text,)
    assert evaluate(text, {text: 5}) == 5
    with pytest.raises(KeyError):
        evaluate(text, {"a": 7, "b": 3})


def test_a_number_is_itself() -> None:
    assert names_in(5) == ()
    assert evaluate(5, {}) == 5


def test_a_whole_expression_can_be_bound() -> None:
    assert evaluate("a + b", {"a": 7, "b": 3, "a + b": 4}) == 4


def test_a_name_without_a_size_is_an_error() -> None:
    with pytest.raises(KeyError):
        evaluate("a + c", SIZES)
