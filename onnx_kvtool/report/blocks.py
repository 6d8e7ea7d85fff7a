"""What a report for people is made of, before anybody knows where it is printed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["VERDICT_STYLES", "Block", "Grid", "Line", "Marked", "named"]

VERDICT_STYLES = {
    "equal": "green",
    "different": "bold red",
    "skipped": "yellow",
    "unrunnable": "yellow",
}
"""Style of the label of a comparison, by how it ended."""


@dataclass(frozen=True, slots=True)
class Line:
    """`label: text` on one line.

    Attributes:
        label: What the text is about.
        text: The text; names in it come from a model and are not escaped yet.
        style: Style of the label, in rich's words.
    """

    label: str
    text: str
    style: str = "bold"


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under a header, each cell on one line.

    Attributes:
        header: Titles of the columns.
        rows: Cells of each row, as many as there are columns; not escaped yet.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Marked:
    """A line of its own in which some places are highlighted on a terminal.

    Attributes:
        text: The line, all of it printable.
        spans: Places as (begin, end), counted in characters.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()


Block = Line | Grid | Marked


def named(path: str) -> str:
    """Return what a model is called that was given as `path`: `-`, "" for one in memory, a file."""
    return {"-": "standard input", "": "a model in memory"}.get(path, path)
