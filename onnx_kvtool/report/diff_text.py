"""What `diff` found, for people: on a terminal, as Markdown for a pull request, as a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from onnx_kvtool.core.words import escape
from onnx_kvtool.report.blocks import Block, Line, named
from onnx_kvtool.report.diff_sections import ARROW, Section, sections, verdict
from onnx_kvtool.report.markup import table
from onnx_kvtool.report.markup import text as escaped
from onnx_kvtool.report.page import whole_page
from onnx_kvtool.review.report import DiffReport

__all__ = ["blocks", "to_html", "to_markdown"]

_STYLES = {"same": "green", "different": "bold red"}
_MOST_ROWS = 60
"""Rows of a table of a job summary, which GitHub limits to a megabyte."""


def blocks(report: DiffReport) -> Iterator[Block]:
    """Yield the lines and tables that the command prints."""
    yield Line(report.outcome, verdict(report), _STYLES[report.status])
    for section in sections(report):
        yield Line(section.label, section.text, "yellow" if section.label == "note" else "bold")
        if section.grid is not None:
            yield section.grid


def to_markdown(report: DiffReport) -> str:
    """Return a report as Markdown of GitHub's kind: a heading, a list, and tables to unfold."""
    title = " and ".join(map(_code, _names(report)))
    lines = [f"### {title}: {report.outcome}", ""]
    for section in sections(report):
        lines += _markdown(section)
    return "\n".join(lines).rstrip("\n")


def _names(report: DiffReport) -> list[str]:
    """Return what the models are called in a heading; one name where both are called the same."""
    if report.old == report.new:  # one path in two versions, as git hands them over
        return [named(report.new)]
    return list(dict.fromkeys(PurePath(named(path)).name for path in (report.old, report.new)))


def _markdown(section: Section) -> Iterator[str]:
    summary = f"**{section.label}**: {_plain(section.text)}"
    if section.grid is None:
        yield f"- {summary}"
        return
    rows = section.grid.rows
    is_open = len(rows) <= 5
    yield from ("", f"<details{' open' if is_open else ''}>")
    yield f"<summary><b>{section.label}</b>: {escaped(section.text)}</summary>"
    yield ""
    yield "| " + " | ".join(section.grid.header) + " |"
    yield "| " + " | ".join("---" for _ in section.grid.header) + " |"
    for row in rows[:_MOST_ROWS]:
        yield "| " + " | ".join(map(_code, row)) + " |"
    yield ""
    if len(rows) > _MOST_ROWS:
        yield f"and {len(rows) - _MOST_ROWS:,} more rows"
        yield ""
    yield "</details>"
    yield ""


def _code(text: str) -> str:
    r"""Return text of a model as code: nothing in it is Markdown or ends a cell of a table."""
    if not text or text == "-":
        return text
    shown = escape(text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in _runs(shown)), default=0) + 1)
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"


def _runs(text: str) -> list[str]:
    return "".join(char if char == "`" else " " for char in text).split()


def _plain(text: str) -> str:
    """Return text of a line, in which names of a model may stand, without Markdown or HTML."""
    shown = escaped(text.replace(ARROW, " → "))
    return "".join(f"\\{char}" if char in "\\`*_[]#|~!" else char for char in shown)


def to_html(report: DiffReport) -> str:
    """Return a report as one page that loads nothing."""
    title = " and ".join(_names(report))
    status = f'<span class="status {report.status}">{report.outcome}</span>'
    body = [f"<h1>{escaped(title)}: {status}</h1>"]
    if verdict(report) != title:
        body.append(f'<p class="soft">{escaped(verdict(report))}</p>')
    return whole_page(f"{title} - kvtool diff", (*body, *_page(report)))


def _page(report: DiffReport) -> Iterator[str]:
    for section in sections(report):
        yield f"<h2>{escaped(section.label)}</h2>"
        yield f"<p>{_unbroken(section.text)}</p>"
        if section.grid is not None:
            yield table(section.grid)


def _unbroken(text: str) -> str:
    """Return text for an element; no line ends at an arrow."""
    return escaped(text).replace(escaped(ARROW), "&nbsp;&rarr;&nbsp;")
