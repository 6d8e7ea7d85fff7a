"""Text from a model inside HTML and SVG."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from onnx_kvtool.core.words import escape, escape_lines
from onnx_kvtool.report.blocks import Grid

__all__ = ["attribute", "table", "text"]


def text(raw: str) -> str:
    """Return `raw` for the inside of an element: no character of it is markup or invisible."""
    return html.escape(escape(raw), quote=False)


def attribute(raw: str, *, lines: bool = False) -> str:
    """Return `raw` for the inside of a quoted attribute; with `lines`, its line breaks stay."""
    return html.escape((escape_lines if lines else escape)(raw), quote=True)


def table(grid: Grid) -> str:
    """Return an HTML table; columns of numbers are set flush right.

    Each cell says the title of its column as well: where a page is too narrow for the columns, its
    style sets the cells of a row under one another.
    """
    titles = [text(title) for title in grid.header]
    columns = zip(*grid.rows, strict=True)
    kinds = [' class="number"' if _are_numbers(column) else "" for column in columns]
    kinds = kinds or [""] * len(titles)
    heads = "".join(f"<th{kind}>{title}</th>" for kind, title in zip(kinds, titles, strict=True))
    begins = [
        f'<td{kind} data-title="{attribute(title)}">'
        for kind, title in zip(kinds, grid.header, strict=True)
    ]
    body = "\n".join(
        "<tr>"
        + "".join(f"{begin}{_cell(cell)}</td>" for begin, cell in zip(begins, row, strict=True))
        + "</tr>"
        for row in grid.rows
    )
    width = "wide" if len(titles) > _FEW else "narrow"
    return (
        f'<div class="scroll"><table class="{width}">\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(raw: str) -> str:
    """Return the inside of a cell; a line could end before a brace, which the style forbids."""
    return _WORD.sub(
        lambda word: f'<span class="whole">{word[0]}</span>' if "{" in word[0][1:] else word[0],
        text(raw),
    )


def _are_numbers(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell not in _NOTHING]
    return bool(known) and all(map(_NUMBER.fullmatch, known))


_FEW = 2
"""Columns that a telephone has room for."""

_WORD = re.compile(r"\S+")
_NOTHING = ("", "-", "none")
_NUMBER = re.compile(r"-?(\d[\d,.]*(e[+-]?\d+)?|inf|nan)( ([KMGTP]i)?B)?( of \d[\d,]*)?")
"""A count, a size or a share; names of a model are hardly ever such."""
