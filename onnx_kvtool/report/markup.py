"""Text from a model inside HTML and SVG."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from onnx_kvtool.core.escape import escape

__all__ = ["attribute", "table", "text"]


def text(raw: str) -> str:
    """Return `raw` for the inside of an element: no character of it is markup or invisible."""
    return html.escape(escape(raw), quote=False)


def attribute(raw: str, *, lines: bool = False) -> str:
    """Return `raw` for the inside of a quoted attribute; with `lines`, its line breaks stay."""
    shown = "\n".join(map(escape, raw.split("\n"))) if lines else escape(raw)
    return html.escape(shown, quote=True)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[str]) -> str:
    """Return an HTML table of cells that are plain text.

    Args:
        header: Titles of the columns.
        rows: Cells of each row, as many as there are columns.
        numbers: Titles of the columns that are set flush right.
    """
    kinds = [' class="number"' if title in numbers else "" for title in header]
    head = "".join(f"<th{kind}>{text(t)}</th>" for kind, t in zip(kinds, header, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{kind}>{text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
