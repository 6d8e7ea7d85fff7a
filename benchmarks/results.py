"""What a benchmark declares, and what it has measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Cell", "Line", "Section", "Table", "Target", "ratio_cell"]


@dataclass(frozen=True, slots=True)
class Target:
    """What was set as a goal, and what was reached.

    Attributes:
        what: The quantity, such as `time over the floor`.
        limit: What it must not exceed, or must reach if `at_least`.
        measured: What it was.
        at_least: Whether more is better.
    """

    what: str
    limit: float
    measured: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached, to the two digits behind the point that are shown."""
        measured = round(self.measured, 2)
        return measured >= self.limit if self.at_least else measured <= self.limit


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table: its text, and the goals that it is held against, mostly none."""

    text: str
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: what was run, and a cell for each column behind the first."""

    case: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is measured as a whole.

    Attributes:
        title: Heading; empty where a section has this table alone.
        about: Markdown above the table.
        columns: Heads of all columns, that of the cases first.
        cases: The first cell of each line, in their order.
        measure: Yields the lines in this order; told whether to take few rounds only.
    """

    title: str
    about: str
    columns: tuple[str, ...]
    cases: tuple[str, ...]
    measure: Callable[[bool], Iterator[Line]]


@dataclass(frozen=True, slots=True)
class Section:
    """A benchmark: what the command line calls it, its heading, text and tables."""

    name: str
    title: str
    about: str
    tables: tuple[Table, ...]


def ratio_cell(
    ratio: float, limit: float | None = None, *, what: str = "ratio", at_least: bool = False
) -> Cell:
    """Return a cell that shows a ratio, held against `limit` unless that is None."""
    text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
    return Cell(text, () if limit is None else (Target(what, limit, ratio, at_least),))
