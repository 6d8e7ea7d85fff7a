"""Tables, grids and searches: what a run takes of them, and what `pytest -m exhaustive` does."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings

__all__ = [
    "EXAMPLES",
    "drawn",
    "each",
    "grid",
    "part",
    "rest",
    "runs_a_part",
    "search",
    "thinned",
    "thins_out",
]

EXAMPLES = 100
"""Examples of a property that does not ask for more or fewer."""
_SHARE, _FEWEST = 40, 3
_Param = type(pytest.param())
_is_whole = False
_is_part = False


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


def each(
    names: str | Sequence[str], lines: Collection[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hold all lines of a table in one test: for lines that take less time than a case of pytest.

    A failure names its line, and the others are held all the same. Fixtures are the same for all.

    Args:
        names: Argument of the test, or several.
        lines: What each line gives them, or what `pytest.param` made; a mapping holds it by what
            the line is called.
    """
    arguments = [names] if isinstance(names, str) else names

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed = []
            named = lines.items() if isinstance(lines, Mapping) else ((None, v) for v in lines)
            for called, line in named:
                values, name = [line] if isinstance(names, str) else line, called or line
                if isinstance(line, _Param):
                    assert not line.marks, "a line has no marks"
                    values, name = line.values, line.id or line.values
                try:
                    test(**dict(zip(arguments, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - it is named
                    failed.append(f"{name}: {type(error).__name__}: {error}")
            assert lines, "the table is empty"
            assert not failed, "\n".join(failed)

        signature = inspect.signature(test)
        fixtures = [p for name, p in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorated


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


def thins_out(test: pytest.Item, number: int) -> bool:
    """Return whether `part` leaves a case, by its number, to the exhaustive run."""
    mark = test.get_closest_marker("part")
    if mark is None:
        return False
    rest, total = number, 0
    for line in reversed([*test.iter_markers("parametrize")]):  # what stands on top varies first
        rest, number = divmod(rest, len(line.args[1]))
        total += number
    return bool(total % mark.args[0])


def search(examples: int) -> settings:
    """Return the settings of a property; each run draws a fortieth, `-m exhaustive` all of them.

    Args:
        examples: How many examples the whole search draws.
    """
    return settings(max_examples=examples if _is_whole else max(examples // _SHARE, _FEWEST))


def drawn(*, exhaustive: bool, slow: bool) -> settings:
    """Say what is run, and return the settings of searches that ask for nothing."""
    global _is_whole, _is_part  # before the first module of tests is imported
    _is_whole, _is_part = exhaustive, not exhaustive and not slow
    return search(EXAMPLES)


def runs_a_part() -> bool:
    """Return whether tests run that are neither exhaustive nor slow."""
    return _is_part


def _marks(number: int, keep: int) -> Sequence[pytest.MarkDecorator]:
    return [pytest.mark.exhaustive] if number % keep else []


def _named(values: Collection[Any]) -> list[tuple[str, Any]]:
    if isinstance(values, Mapping):
        return [(str(name), value) for name, value in values.items()]
    return [(str(value), value) for value in values]
