"""Which dimensions are one size."""

from __future__ import annotations

import pytest

from onnx_kvtool.symbolic.dim_text import normal
from onnx_kvtool.symbolic.dims import Dim, Equalities


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s6", "s6"),
        (" s6 ", "s6"),
        ("1 + s6", "s6 + 1"),
        ("s6 - Min(16, s6) + 16", "-Min(16, s6) + s6 + 16"),
        ("16 - Min(s6, 16) + s6", "-Min(16, s6) + s6 + 16"),
        ("a*2*b", "2 * a * b"),
        ("b * (a + 1)", "a * b + b"),
        ("a - a", "0"),
        ("n // 2 + 0", "(n // 2)"),
        ("n % 2", "(n % 2)"),
        ("batch-size", "batch-size"),
        ("past.len", "past.len"),
        ("f(x)", "f(x)"),
        ("a if b else c", "a if b else c"),
        ("(((", "((("),
        ("größe + 1", "größe + 1"),
    ],
)
def test_a_text_has_one_normal_form(text: str, expected: str) -> None:
    assert normal(text) == expected
    assert normal(normal(text)) == expected


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (3, 3, True),
        (3, 4, False),
        ("B", "B", True),
        ("B", "B2", False),
        ("B", 3, False),
        (None, None, False),
        ("a + 1", "1 + a", True),
    ],
)
def test_dimensions_are_one_size_only_where_that_is_certain(a: Dim, b: Dim, same: bool) -> None:
    assert Equalities().same(a, b) is same


def test_granted_equalities_are_transitive_and_end_in_a_number() -> None:
    equalities = Equalities([("A", "B"), ("C", "D"), ("B", "C"), ("D", 4)])
    assert [equalities.canonical(name) for name in "ABCD"] == [4, 4, 4, 4]
    assert equalities.canonical("E") == "E"


@pytest.mark.parametrize(
    "granted", [[("A", 3), ("A", 4)], [(3, 4)], [("A", 3), ("B", 4), ("A", "B")], [("A", None)]]
)
def test_equalities_that_cannot_be_are_refused(granted: list[tuple[Dim, Dim]]) -> None:
    with pytest.raises(ValueError, match=r"equal|cannot"):
        Equalities(granted)
