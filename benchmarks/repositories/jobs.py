"""`kvtool check` over repositories of any number of files: jobs, memory, results that are kept."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes.environments import repository_programs
from benchmarks.processes.run import Run, run
from benchmarks.repositories.models import large_models, small_models, workplace
from benchmarks.results import Cell, Line, Table, Target, ratio_cell

__all__ = ["ABOUT", "JOBS", "MANY", "checked_alone"]

MANY = 10_000
"""Models of the largest repository."""

_TIME_LIMIT = 3600
_KEPT_LIMIT = 0.1
_SLOWER = {True: 1.05, False: 1.0}
"""Two jobs over one may be at most this: for few files both do the same but for starting them."""
_FEW = 20


@dataclass(frozen=True, slots=True)
class _Repository:
    """A repository that is checked.

    Attributes:
        make: Makes so many models, and returns their directory.
        count: So many.
        rounds: How often one and two jobs take turns.
        keeps: Whether the results of the first runs are kept, and used by one more.
    """

    make: Callable[[int], Path]
    count: int
    rounds: int
    keeps: bool = False


_REPOSITORIES = {
    "1 small model": _Repository(small_models, 1, 3),
    "5 small models": _Repository(small_models, 5, 3),
    "20 small models": _Repository(small_models, _FEW, 3),
    "100 small models": _Repository(small_models, 100, 3),
    "1,000 small models": _Repository(small_models, 1000, 1, keeps=True),
    "10,000 small models": _Repository(small_models, MANY, 1, keeps=True),
    "200 large models": _Repository(large_models, 200, 1, keeps=True),
}


@dataclass(slots=True)
class _Runs:
    """The runs over one repository."""

    one: list[Run] = field(default_factory=list)
    two: list[Run] = field(default_factory=list)
    again: Run | None = None


def checked_alone(models: Path) -> Path:
    """Return the report of a check by one job, which is made if need be."""
    report = _report(models, "one")
    if not report.exists():
        _check(models, "one", [])
    return report


def _report(models: Path, name: str) -> Path:
    return workplace() / f"{models.name}-{name}.json"


def _check(models: Path, name: str, options: list[str | Path]) -> Run:
    """Check a repository, and write the report of this name.

    Raises:
        RuntimeError: If the check fails.
    """
    report = _report(models, name)
    fixed = ["--isolated", "--exit-zero", "-q", "--format", "json", "-o", report]
    command = [repository_programs() / "kvtool", "check", *fixed, *options, "."]
    done = run(command, models, _TIME_LIMIT)
    if done.failure is not None:
        raise RuntimeError(f"the check of `{models.name}` failed: {done.failure}")
    said = f"{done.seconds:.1f} s, processor {done.processor:.1f} s, {done.megabytes:.0f} MB"
    print(f"  {models.name}, {name}: {said}", file=sys.stderr, flush=True)
    return done


def _runs(repository: _Repository, quick: bool) -> _Runs:
    """Check one repository again and again.

    Raises:
        RuntimeError: If two reports differ.
    """
    count = max(3, repository.count // 50) if quick and repository.keeps else repository.count
    models = repository.make(count)
    names = {"one": ["--jobs", "1"], "two": ["--jobs", "2"]}
    runs = _Runs()
    if not repository.keeps:
        _check(models, "one", [])  # what is read from disk for the first time
    for number in range(1 if quick else repository.rounds):
        for name in sorted(names, reverse=number % 2 == 1):
            kept = workplace() / f"{models.name}-kept-{name}-{number}"
            keep: list[str | Path] = ["--cache-dir", kept] if repository.keeps else []
            getattr(runs, name).append(_check(models, name, [*names[name], *keep]))
    reports = ["one", "two"]
    if repository.keeps:
        kept = workplace() / f"{models.name}-kept-one-0"
        runs.again = _check(models, "again", ["--jobs", "1", "--cache-dir", kept])
        reports.append("again")
    if len({_report(models, name).read_bytes() for name in reports}) != 1:
        raise RuntimeError(f"the reports of `{models.name}` differ")
    return runs


def _lines(quick: bool) -> Iterator[Line]:
    base = None
    for case, repository in _REPOSITORIES.items():
        runs = _runs(repository, quick)
        peak = max(done.megabytes for done in runs.one)
        if case == "1,000 small models":
            base = peak
        yield Line(case, tuple(_cells(case, repository, runs, peak, base)))


def _cells(
    case: str, repository: _Repository, runs: _Runs, peak: float, base: float | None
) -> Iterator[Cell]:
    yield Cell(f"{statistics.median(done.seconds for done in runs.one):.1f} s")
    pairs = list(zip(runs.two, runs.one, strict=True))
    ratio = statistics.median(two.seconds / one.seconds for two, one in pairs)
    yield ratio_cell(ratio, _SLOWER[repository.count <= _FEW], what="time of two jobs over one")
    yield Cell(f"{statistics.median(two.processor / one.processor for two, one in pairs):.2f}")
    if runs.again is None:
        yield Cell("")
    else:
        again = runs.again.seconds / runs.one[0].seconds
        processor = runs.again.processor / runs.one[0].processor
        targets = (
            Target("time of the second run over the first", _KEPT_LIMIT, again),
            Target("processor time of the second run over the first", _KEPT_LIMIT, processor),
        )
        is_large = repository.count >= 200 and case != "1,000 small models"
        yield Cell(f"{again:.2f}, {processor:.2f}", targets if is_large else ())
    grown = case == "10,000 small models" and base is not None
    memory = Target("peak memory over that of 1,000", 1.1, peak / base) if grown and base else None
    yield Cell(f"{peak:.0f} MB", (memory,) if memory else ())


ABOUT = (
    "Processes of `kvtool check --format json` with `--jobs 1` and `--jobs 2`, in turns; ratios of "
    "the time on the wall and of the time of all processors. From 1,000 models on, both keep their "
    "results with `--cache-dir`, and a third one uses those of the first: what it takes is a ratio "
    "of either time to the first. That all reports are the same, byte for byte, is part of the "
    "measurement. The peak memory is that of one job."
)
"""What the section says above the table."""

JOBS = Table(
    "",
    "",
    (
        "repository",
        "one job",
        "two jobs over one",
        "processor time",
        "again over first, processor time",
        "peak memory",
    ),
    tuple(_REPOSITORIES),
    _lines,
)
"""The table of jobs, memory and kept results."""
