"""The commands of a group on each model, in turns with the floor."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes.commands import FLOOR, MEMORY_TARGET, Command, Group
from benchmarks.processes.environments import kvtool_programs
from benchmarks.processes.models import MODELS, Model, written
from benchmarks.processes.run import Run, run
from benchmarks.results import Cell, Line, Target

__all__ = ["group_lines", "prepared", "run_clean"]

_SLOW = 5
"""Seconds from which on a command runs once: the noise is small beside what it takes."""


def group_lines(group: Group, quick: bool) -> Iterator[Line]:
    """Run the commands of a group on every model; yield a line for the floor and for each."""
    commands = (FLOOR, *group.commands)
    columns = []
    for name in MODELS:
        with tempfile.TemporaryDirectory() as directory:
            model = prepared(name, Path(directory))
            columns.append(_column(commands, model, 1 if quick else 5))
    for command in commands:
        yield Line(command.case, tuple(column[command.case] for column in columns))


def prepared(name: str, directory: Path) -> Model:
    """Write a model and its exported form.

    Raises:
        RuntimeError: If the exported form could not be made.
    """
    model = written(name, directory)
    lower = ("lower", model.path, "-o", model.exported, "--only", "TensorScatter", "--no-verify")
    done = run([kvtool_programs() / "kvtool", *lower], directory)
    if done.failure is not None:
        raise RuntimeError(f"`{name}` has no exported form: {done.failure}")
    return model


def run_clean(command: Command, model: Model) -> tuple[Run, bool]:
    """Run a command on a model and remove what it wrote.

    Returns:
        The run, and whether the file of weights was read or written.
    """
    directory = model.path.parent
    before = set(directory.iterdir())
    if model.data is not None:
        os.utime(model.data, (0, os.stat(model.data).st_mtime))
    done = run(command.on(model, directory / "output.onnx"), directory)
    touched = model.data is not None and _touched(model.data)
    for path in set(directory.iterdir()) - before:
        path.unlink()
    return done, touched


def _touched(data: Path) -> bool:
    """Return whether a sparse file whose time of access was set to 0 has been read or filled.

    Raises:
        RuntimeError: If the file system does not keep times of access.
    """
    found = os.stat(data)
    touched = found.st_blocks != 0 or found.st_atime != 0
    if not touched:
        with open(data, "rb") as file:
            file.read(1)
        if os.stat(data).st_atime == 0:
            raise RuntimeError("the file system of the temporary directory keeps no access times")
    return touched


def _column(commands: tuple[Command, ...], model: Model, rounds: int) -> dict[str, Cell]:
    """Return the cells of one model by case.

    Raises:
        RuntimeError: If a command failed that a target depends on, or that did not fail before.
    """
    runs: dict[str, list[Run]] = {command.case: [] for command in commands}
    touched: set[str] = set()
    for _ in range(rounds):
        for command in commands:
            first = runs[command.case][0] if runs[command.case] else None
            if first is not None and (first.failure is not None or first.seconds > _SLOW):
                continue
            done, read = run_clean(command, model)
            runs[command.case].append(done)
            needed = command.home == "kvtool" or any(command.case in c.beside for c in commands)
            if done.failure is not None and (needed or first is not None):
                raise RuntimeError(f"{command.case} failed on {model.name}: {done.failure}")
            if read:
                touched.add(command.case)
            if first is None:
                said = done.failure or f"{done.seconds:.2f} s, {done.megabytes:.0f} MB"
                print(f"  {model.name}, {command.case}: {said}", file=sys.stderr, flush=True)
    return {
        command.case: _cell(command, model, runs, command.case in touched) for command in commands
    }


def _cell(command: Command, model: Model, runs: dict[str, list[Run]], touched: bool) -> Cell:
    own = runs[command.case]
    megabytes = max(done.megabytes for done in own)
    reads = ", reads the weights" if touched else ""
    if own[0].failure is not None:
        return Cell(f"{own[0].failure} ({megabytes:.0f} MB{reads})")
    if command is FLOOR:
        seconds = statistics.median(done.seconds for done in own)
        return Cell(f"{seconds:.2f} s, {megabytes:.0f} MB")
    ratio = _ratio(own, runs[FLOOR.case])
    targets = []
    if model.name in command.targets:
        targets.append(Target("time over the floor", command.targets[model.name], ratio))
    if model.name == "20,000 nodes":
        for case, limit in command.beside.items():
            targets.append(Target(f"time over {case}", limit, _ratio(own, runs[case])))
    if model.data is not None and command.home == "kvtool":
        targets.append(Target("peak memory in MB", MEMORY_TARGET, megabytes))
        targets.append(Target("reads of the file of weights", 0, float(touched)))
    return Cell(f"{ratio:.2f}, {megabytes:.0f} MB{reads}", tuple(targets))


def _ratio(ours: list[Run], others: list[Run]) -> float:
    """Return the median over the rounds of the ratio of the times, as far as both have run."""
    return statistics.median(
        one.seconds / other.seconds for one, other in zip(ours, others, strict=False)
    )
