"""What was measured last, beside the code that measures: the page is made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.results import Cell, Line, Target

__all__ = ["STORE", "Measured", "load", "save"]

STORE = Path(__file__).with_name("measured.json")
"""Where the measurements of the page are kept."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements with one set of packages on one machine.

    Attributes:
        machine: What describes the machine and Python.
        versions: Version of each package.
        tables: By name of the section, the lines of each of its tables.
    """

    machine: dict[str, str]
    versions: dict[str, str]
    tables: dict[str, Sequence[Sequence[Line]]]


def save(measured: Measured, path: Path = STORE) -> None:
    """Write the measurements as JSON."""
    text = json.dumps(asdict(measured), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def load(path: Path = STORE) -> Measured:
    """Read measurements.

    Raises:
        FileNotFoundError: If nothing was measured yet.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    tables: dict[str, Sequence[Sequence[Line]]] = {
        name: [[_line(line) for line in lines] for lines in tables]
        for name, tables in found["tables"].items()
    }
    return Measured(found["machine"], found["versions"], tables)


def _line(found: dict[str, object]) -> Line:
    cells = found["cells"]
    assert isinstance(cells, list)
    return Line(
        str(found["case"]),
        tuple(Cell(c["text"], tuple(Target(**t) for t in c["targets"])) for c in cells),
    )
