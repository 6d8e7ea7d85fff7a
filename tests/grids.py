"""Grids and searches of which each run takes a part, and `pytest -m exhaustive` all or the rest."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["EXAMPLES", "drawn", "grid", "part", "rest", "search", "thinned", "thins_out"]

EXAMPLES = 100
"""Examples of a property that does not ask for more or fewer."""
_SHARE, _FEWEST = 6, 10
_is_whole = False


def grid(keep: int, **factors: Collection[Any]) -> pytest.MarkDecorator:
    """Parametrize a test with all combinations; every `keep`-th runs by default.

    The numbers of the values of a combination add up to a multiple of `keep`, so that each value
    meets each value of another factor if the factors besides them have `keep` values or more.

    Args:
        keep: How many combinations there are for each that runs by default.
        factors: Values by argument of the test; a mapping holds them by what the test is called.
    """
    named = [_named(values) for values in factors.values()]
    lines = []
    for numbered in itertools.product(*(enumerate(values) for values in named)):
        total = sum(number for number, _ in numbered)
        name = "-".join(name for _, (name, _) in numbered)
        values = [value for _, (_, value) in numbered]
        lines.append(pytest.param(*values, id=str(name), marks=_marks(total, keep)))
    return pytest.mark.parametrize(tuple(factors), lines)


def thinned(lines: Collection[Any], keep: int) -> list[Any]:
    """Return what `parametrize` takes; every `keep`-th runs by default.

    Args:
        lines: Values of one argument, or what `pytest.param` made; a mapping holds values by name.
        keep: How many there are for each that runs by default.
    """
    if isinstance(lines, Mapping):
        return [
            pytest.param(value, id=str(name), marks=_marks(number, keep))
            for number, (name, value) in enumerate(lines.items())
        ]
    return [
        pytest.param(*line.values, id=line.id, marks=[*line.marks, *_marks(number, keep)])
        if hasattr(line, "marks")
        else pytest.param(line, marks=_marks(number, keep))
        for number, line in enumerate(lines)
    ]


def rest(*values: Any) -> list[Any]:
    """Return values of one argument that do not run by default."""
    return [pytest.param(value, marks=pytest.mark.exhaustive) for value in values]


def part(keep: int) -> pytest.MarkDecorator:
    """Let every `keep`-th case of a test run by default, chosen as `grid` does.

    Args:
        keep: How many combinations of its `parametrize` there are for each that runs by default.
    """
    return pytest.mark.part(keep)


def thins_out(item: pytest.Item) -> bool:
    """Return whether `part` leaves a case to the exhaustive run."""
    mark = item.get_closest_marker("part")
    if mark is None:
        return False
    rest = next(iter(item.callspec.indices.values()))  # type: ignore[attr-defined]
    total = 0
    for line in reversed([*item.iter_markers("parametrize")]):  # what stands on top varies first
        rest, number = divmod(rest, len(line.args[1]))
        total += number
    return bool(total % mark.args[0])


def search(examples: int) -> settings:
    """Return the settings of a property; each run draws a sixth, `-m exhaustive` all of them.

    Args:
        examples: How many examples the whole search draws.
    """
    return settings(max_examples=examples if _is_whole else max(examples // _SHARE, _FEWEST))


def drawn(whole: bool) -> settings:
    """Say whether searches are whole, and return the settings of those that ask for nothing."""
    global _is_whole  # noqa: PLW0603 - before the first module of tests is imported
    _is_whole = whole
    return search(EXAMPLES)


def _marks(number: int, keep: int) -> Sequence[pytest.MarkDecorator]:
    return [pytest.mark.exhaustive] if number % keep else []


def _named(values: Collection[Any]) -> list[tuple[str, Any]]:
    if isinstance(values, Mapping):
        return [(str(name), value) for name, value in values.items()]
    return [(str(value), value) for value in values]
