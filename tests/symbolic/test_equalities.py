"""Which dimensions are one size."""

from __future__ import annotations

import pytest

from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim
from tests.grids import each


@each(
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
    equalities = SizeEqualities()
    one, other = equalities.of_dim(a), equalities.of_dim(b)
    assert (one is not None and other is not None and equalities.same(one, other)) is same


def test_granted_equalities_are_transitive_and_end_in_a_number() -> None:
    equalities = SizeEqualities([("A", "B"), ("C", "D"), ("B", "C"), ("D", 4)])
    assert [str(equalities.of_dim(name)) for name in "ABCDE"] == ["4", "4", "4", "4", "E"]


def test_of_equal_names_the_first_stands_for_all() -> None:
    equalities = SizeEqualities([("A", "B"), ("C", "A")])
    assert [str(equalities.of_dim(name)) for name in "ABC"] == ["C", "C", "C"]


def test_what_an_expression_adds_up_to_is_no_fact() -> None:
    equalities = SizeEqualities([("A", "B")])
    assert str(equalities.of_dim("1 + A")) == "(A + 1)"
    assert equalities.of_dim("A + 1") != equalities.of_dim("B + 1")


@each("granted", [[("A", 3), ("A", 4)], [(3, 4)], [("A", 3), ("B", 4), ("A", "B")], [("A", None)]])
def test_equalities_that_cannot_be_are_refused(granted: list[tuple[Dim, Dim]]) -> None:
    with pytest.raises(ValueError, match=r"equal|cannot"):
        SizeEqualities(granted)
