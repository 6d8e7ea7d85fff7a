"""What runs by default of a grid of cases: enough, and with the rest all of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.grids import each, grid, part, rest, thinned


def values_of(lines: list[Any], *, by_default: bool) -> list[tuple[Any, ...]]:
    """Return the values of the cases that run by default, or of those that do not."""
    return [
        line.values
        for line in lines
        if by_default is not any(mark.name == "exhaustive" for mark in line.marks)
    ]


def test_each_value_meets_each_other_and_nothing_is_lost() -> None:
    opsets, forms, flags = [11, 18, 23], ["a", "b", "c", "d"], {"on": 1, "off": 0, "?": None}
    names, lines = grid(3, opset=opsets, form=forms, flag=flags).args
    assert names == ("opset", "form", "flag")
    run, left = (values_of(lines, by_default=default) for default in (True, False))
    assert len(run) * 3 == len(run) + len(left) == len({*run, *left}) == 36
    for first, second in itertools.combinations(range(3), 2):
        met = {(case[first], case[second]) for case in run}
        every = {(case[first], case[second]) for case in (*run, *left)}
        assert met == every
    assert [line.id for line in lines][:2] == ["11-a-on", "11-a-off"]


def test_every_third_line_runs() -> None:
    lines = [pytest.param(n, -n, id=str(n), marks=pytest.mark.slow) for n in range(7)]
    for thin in (thinned(lines, 3), thinned(range(7), 3), thinned({n: n for n in range(7)}, 3)):
        assert [case[0] for case in values_of(thin, by_default=True)] == [0, 3, 6]
        assert [case[0] for case in values_of(thin, by_default=False)] == [1, 2, 4, 5]
    assert all(line.marks[0].name == "slow" for line in thinned(lines, 3))


def test_the_rest_runs_later() -> None:
    assert values_of(rest(1, 2), by_default=True) == []
    assert values_of(rest(1, 2), by_default=False) == [(1,), (2,)]


@part(3)
@pytest.mark.parametrize("flag", {"on": 1, "off": 0}.values(), ids=["on", "off"])
@pytest.mark.parametrize(("a", "b"), [(n, -n) for n in range(3)])
@pytest.mark.parametrize("c", range(5))
def test_a_part_of_stacked_values_runs(
    a: int, b: int, c: int, flag: int, request: pytest.FixtureRequest
) -> None:
    is_left = any(mark.name == "exhaustive" for mark in request.node.iter_markers())
    assert is_left == bool((a + c + (1 - flag)) % 3)
    assert b == -a


def test_a_failure_names_its_lines_and_the_others_are_held() -> None:
    held = []

    @each("size", {"two": 2, "three": 3, "five": 5})
    def test(size: int, base: int) -> None:
        held.append(size)
        assert size % base == 1, "even"

    with pytest.raises(AssertionError, match=r"^two: AssertionError: even\nassert") as caught:
        test(base=2)
    assert "three" not in str(caught.value)
    assert held == [2, 3, 5]


@each(("a", "b"), [(2, 4), (3, 9)])
def test_fixtures_are_given_to_each_line(a: int, b: int, tmp_path: Path) -> None:
    assert a**2 == b
    assert tmp_path.is_dir()


def test_a_table_without_lines_is_no_proof() -> None:
    with pytest.raises(AssertionError, match="the table is empty"):
        each("a", [])(lambda a: None)()


def test_a_line_may_be_a_parameter_set() -> None:
    held = []

    @each("size", [pytest.param(2, id="two"), pytest.param(4, id="four")])
    @each(("a", "b"), [pytest.param(1, 1, id="ones"), (1, 4)])
    def test(size: int, a: int, b: int) -> None:
        held.append((size, a, b))
        assert size * a != b

    with pytest.raises(AssertionError, match=r"^four: AssertionError: \(1, 4\): AssertionError"):
        test()
    assert held == [(2, 1, 1), (2, 1, 4), (4, 1, 1), (4, 1, 4)]
    with pytest.raises(AssertionError, match="a line has no marks"):
        each("a", [pytest.param(1, marks=pytest.mark.slow)])(lambda a: None)()
