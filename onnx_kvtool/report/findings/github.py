"""Findings as workflow commands of GitHub Actions, which shows them as annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.words import counted, escape, escape_lines
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import RANK, FileReport, Tally
from onnx_kvtool.report.findings.writer import (
    Spool,
    Writer,
    folded,
    found_in_words,
    others_in_words,
    placed_message,
    qualified_name,
    shown_path,
)

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}
_LONGEST_SUMMARY = 500  # rows; GitHub refuses a summary above 1 MiB


_Row = tuple[str, Finding, list[Finding]]
"""Path, first finding of a group, and the others."""


class GithubWriter(Writer):
    """One command for each group of findings, errors first: GitHub shows ten of a kind."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._spools = {severity: Spool() for severity in RANK}

    def file(self, file: FileReport) -> str:
        """Keep the commands of one file, by severity."""
        for row in _rows(file):
            self._spools[row[1].severity].add(_command(*row) + "\n")
        return ""

    def end(self) -> Iterator[str]:
        """Yield the commands."""
        for spool in self._spools.values():
            yield from spool.pieces()


def _rows(file: FileReport) -> Iterator[_Row]:
    return ((file.path, *group) for group in folded(file.findings))


def _command(path: str, finding: Finding, others: Sequence[Finding]) -> str:
    title = f"{finding.code} {finding.name}"
    text = placed_message(finding)
    if finding.help:
        text += f"\nhelp: {finding.help}"
    if others:
        text += f"\nalike: {others_in_words(others)}"
    properties = f"file={_property(shown_path(path))},line=1,title={_property(title)}"
    return f"::{_COMMANDS[finding.severity]} {properties}::{_data(text)}"


def _data(text: str) -> str:
    """Escape the characters of a message that would end the command or begin an escape."""
    return escape_lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escape(text)).replace(":", "%3A").replace(",", "%2C")


class StepSummary:
    """The summary of a job in Markdown: counts, and a table of the findings, the worst first."""

    def __init__(self) -> None:
        self._rows: dict[Severity, list[_Row]] = {severity: [] for severity in RANK}
        self._count = 0

    def add(self, file: FileReport) -> None:
        """Add one file; no more rows are kept than are shown."""
        for row in _rows(file):
            self._count += 1
            rows = self._rows[row[1].severity]
            if len(rows) < _LONGEST_SUMMARY:
                rows.append(row)

    def text(self, tally: Tally) -> str:
        """Return the summary of all added files."""
        summary = tally.summary
        counts = f"{found_in_words(summary)} in {counted(summary.files, 'file')}."
        lines = ["## kvtool check", "", counts, ""]
        if self._count:
            lines += ["| | rule | model | place | message |", "| --- | --- | --- | --- | --- |"]
        rows = [row for rows in self._rows.values() for row in rows][:_LONGEST_SUMMARY]
        lines += (_table_row(*row) for row in rows)
        if self._count > len(rows):
            lines += ["", f"and {self._count - len(rows)} more"]
        return "\n".join(lines) + "\n"


def _table_row(path: str, finding: Finding, others: Sequence[Finding]) -> str:
    alike = f" (and {counted(len(others), 'other')} alike)" if others else ""
    cells = (
        finding.severity,
        f"{finding.code} {finding.name}",
        shown_path(path),
        qualified_name(finding.location),
        finding.message + alike,
    )
    return "| " + " | ".join(map(_cell, cells)) + " |"


def step_outputs(report: Tally) -> str:
    """Return the counts as outputs of a step, a line for each."""
    summary = report.summary
    counts = {
        "files": summary.files,
        "errors": summary.error,
        "warnings": summary.warning,
        "remarks": summary.info,
    }
    return "".join(f"{name}={count}\n" for name, count in counts.items())


def _cell(text: str) -> str:
    r"""Escape what would end a cell, or begin a tag of HTML."""
    safe = escape(text)
    return safe.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
