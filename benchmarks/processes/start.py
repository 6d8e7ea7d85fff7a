"""How long programs take to say how they are used."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes.environments import kvtool_programs, peer_programs
from benchmarks.processes.run import medians
from benchmarks.results import Cell, Line, Table, ratio_cell

__all__ = ["START"]

_FLOOR = '`python -c "import click"`'
_KVTOOL = {"`kvtool --help`": "--help", "`kvtool --version`": "--version"}
_PEERS = ("polygraphy", "onnxsim", "onnxslim", "onnx-doctor")
_LIMIT = 2.0


def _commands() -> dict[str, list[str | Path]]:
    ours, theirs = kvtool_programs(), peer_programs()
    return {
        _FLOOR: [ours / "python", "-c", "import click"],
        **{case: [ours / "kvtool", option] for case, option in _KVTOOL.items()},
        **{f"`{name} --help`": [theirs / name, "--help"] for name in _PEERS},
    }


def _lines(quick: bool) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as directory:
        seconds = medians(_commands(), Path(directory), 3 if quick else 20)
    floor = seconds.pop(_FLOOR)
    yield Line(_FLOOR, (Cell(f"{floor * 1e3:.0f} ms"),))
    for case, taken in seconds.items():
        yield Line(case, (ratio_cell(taken / floor, _LIMIT if case in _KVTOOL else None),))


START = Table(
    "start",
    "What it takes to print the usage, as a ratio to a Python that imports click; medians of "
    "twenty runs in turns.",
    ("command", "time over the first line"),
    (_FLOOR, *_KVTOOL, *(f"`{name} --help`" for name in _PEERS)),
    _lines,
)
"""The table of start-up."""
