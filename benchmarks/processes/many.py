"""A repository of small models: many files in one process, and one process for each file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx

from benchmarks.decoders import decoder
from benchmarks.processes.environments import kvtool_programs, peer_programs
from benchmarks.processes.run import medians
from benchmarks.results import Cell, Line, Table, ratio_cell

__all__ = ["MANY"]

_COUNT = 200
_TIME_LIMIT = 600
"""Seconds; a process for each model takes its time."""
_CHECK = "import sys, onnx.checker; onnx.checker.check_model(sys.argv[1], full_check=True)"
_LOOP = "a shell loop over `onnx.checker`, full check"
_KVTOOL = {
    "`kvtool check --jobs 2`": ("--jobs", "2"),
    "`kvtool check`": (),
}
_DOCTOR = "`onnx-doctor check`"


def _commands(models: Path) -> dict[str, list[str | Path]]:
    ours, theirs = kvtool_programs(), peer_programs()
    loop = f"for m in {models}/*.onnx; do {theirs / 'python'} -c '{_CHECK}' \"$m\" || exit 1; done"
    check: list[str | Path] = [ours / "kvtool", "check", "--isolated", "--exit-zero", models]
    return {
        _LOOP: ["sh", "-c", loop],
        **{case: [*check, *options] for case, options in _KVTOOL.items()},
        _DOCTOR: [theirs / "onnx-doctor", "check", models],
    }


def _lines(quick: bool) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as directory:
        models = Path(directory, "models")
        models.mkdir()
        for number in range(_COUNT):
            onnx.save(decoder(1 + number % 3), models / f"{number:03}.onnx")
        seconds = medians(_commands(models), Path(directory), 1 if quick else 2, _TIME_LIMIT)
    loop = seconds.pop(_LOOP)
    yield Line(_LOOP, (Cell(f"{loop:.1f} s"),))
    for case, taken in seconds.items():
        yield Line(case, (ratio_cell(taken / loop, 1.0 if "--jobs" in case else None),))


MANY = Table(
    "many models",
    f"{_COUNT} decoders of one to three layers in a directory, as a ratio to a loop that starts "
    "onnx's checker for one after the other.",
    ("command", "time over the first line"),
    (_LOOP, *_KVTOOL, _DOCTOR),
    _lines,
)
"""The table of many models."""
