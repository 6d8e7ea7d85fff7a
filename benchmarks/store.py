"""What was measured last, beside the code that measures: the page is made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.results import Cell, Line, Target

__all__ = ["STORE", "Measured", "load", "save"]

STORE = Path(__file__).with_name("measured.json")
"""Where the measurements of the page are kept."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements with one set of packages on one machine, but for some sections.

    Attributes:
        machine: What describes the machine and Python.
        versions: Version of each package.
        tables: By name of the section, the lines of each of its tables.
        elsewhere: By name of a section that was measured on another machine or with other packages,
            what is different there.
    """

    machine: dict[str, str]
    versions: dict[str, str]
    tables: dict[str, Sequence[Sequence[Line]]]
    elsewhere: dict[str, dict[str, str]] = field(default_factory=dict)

    def with_section(
        self,
        name: str,
        tables: Sequence[Sequence[Line]],
        machine: dict[str, str],
        versions: dict[str, str],
    ) -> Measured:
        """Return the measurements with a section anew, which may have been measured elsewhere."""
        here, there = self.machine | self.versions, machine | versions
        different = {k: there.get(k, "none") for k in here | there if here.get(k) != there.get(k)}
        others = {k: facts for k, facts in self.elsewhere.items() if k != name}
        return Measured(
            self.machine,
            self.versions,
            {**self.tables, name: tables},
            {**others, name: different} if different else others,
        )


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
    return Measured(found["machine"], found["versions"], tables, found.get("elsewhere", {}))


def _line(found: dict[str, object]) -> Line:
    cells = found["cells"]
    assert isinstance(cells, list)
    return Line(
        str(found["case"]),
        tuple(Cell(c["text"], tuple(Target(**t) for t in c["targets"])) for c in cells),
    )
