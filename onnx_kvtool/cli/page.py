"""How a page of help is set: nothing that is typed or read as one word is broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import click

__all__ = ["KvtoolContext", "PageFormatter", "write_epilog", "write_sections"]

_COLUMN = 28  # width of the names of options, beyond which their text starts on a line of its own

# Characters that stand for those at which lines are broken, until the lines are made.
_HYPHEN, _SPACE = "\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"
_WHOLE = re.compile(r"`[^`]*`|\[[^\[\]]{,30}\]|(?<=; )[^;\[\]]{,30}\]")
"""Code, and what is short in brackets, such as `[default: 4; 1 or more]`."""


def _bound(text: str) -> str:
    """Return `text` with other characters where no line may end."""
    text = _WHOLE.sub(lambda found: found[0].replace(" ", _SPACE), text)
    return text.replace("-", _HYPHEN)


class PageFormatter(click.HelpFormatter):
    """Breaks lines neither at hyphens nor within code."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_bound(text))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms and their texts."""
        super().write_dl([(term, _bound(text)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """Return what was written."""
        return super().getvalue().replace(_HYPHEN, "-").replace(_SPACE, " ")


class KvtoolContext(click.Context):
    """A context whose help is set by `PageFormatter`."""

    formatter_class = PageFormatter


def write_sections(
    formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    """Write lists of terms and texts under titles, all texts in one column."""
    terms = [len(term) for records in sections.values() for term, _ in records]
    column = max((length for length in terms if length <= _COLUMN), default=_COLUMN)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                rows = [(term.ljust(column), text) for term, text in records]
                formatter.write_dl(rows, col_max=column)


def write_epilog(formatter: click.HelpFormatter, epilog: str | None) -> None:
    r"""Write the blocks of an epilog, which `\b` begins, line by line as they are."""
    for block in (epilog or "").split("\b\n"):
        if block.strip():
            formatter.write_paragraph()
            formatter.write(block.strip("\n") + "\n")
