"""Grids of cases of which each run takes a part, and `pytest -m exhaustive` the rest."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

__all__ = ["grid", "rest", "thinned"]


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


def _marks(number: int, keep: int) -> Sequence[pytest.MarkDecorator]:
    return [pytest.mark.exhaustive] if number % keep else []


def _named(values: Collection[Any]) -> list[tuple[str, Any]]:
    if isinstance(values, Mapping):
        return [(str(name), value) for name, value in values.items()]
    return [(str(value), value) for value in values]
