"""Which dimensions are one size."""

from __future__ import annotations

import pytest

from onnx_kvtool.symbolic.dims import Dim, Equalities


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
