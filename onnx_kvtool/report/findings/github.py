"""Findings as workflow commands of GitHub Actions, which shows them as annotations."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.quantity import counted
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import RANK, CheckReport
from onnx_kvtool.report.escape import escape
from onnx_kvtool.report.findings.folding import folded, others_in_words
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.paths import shown_path

__all__ = ["step_outputs", "step_summary", "to_github"]

_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}
_LONGEST_SUMMARY = 500  # rows; GitHub refuses a summary above 1 MiB


def to_github(report: CheckReport) -> str:
    """Return one command for each group of findings, errors first: GitHub shows ten of a kind."""
    return "\n".join(_command(*row) for row in _rows(report))


def _rows(report: CheckReport) -> list[tuple[str, Finding, list[Finding]]]:
    """Return path, finding and those alike, the worst first."""
    rows = [(file.path, *group) for file in report.files for group in folded(file.findings)]
    return sorted(rows, key=lambda row: RANK[row[1].severity])


def _command(path: str, finding: Finding, others: Sequence[Finding]) -> str:
    title = f"{finding.code} {finding.name}"
    place = qualified_name(finding.location)
    text = f"{place}: {finding.message}" if place else finding.message
    if finding.help:
        text += f"\nhelp: {finding.help}"
    if others:
        text += f"\nalike: {others_in_words(others)}"
    properties = f"file={_property(shown_path(path))},line=1,title={_property(title)}"
    return f"::{_COMMANDS[finding.severity]} {properties}::{_data(text)}"


def _data(text: str) -> str:
    """Escape a message: only what would end the command, or be taken for an escape, is written."""
    safe = "\n".join(escape(line) for line in text.split("\n"))
    return safe.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escape(text)).replace(":", "%3A").replace(",", "%2C")


def step_summary(report: CheckReport) -> str:
    """Return the summary of a job in Markdown: counts, and a table of the findings."""
    summary = report.summary
    counts = ", ".join(
        (
            counted(summary.error, "error"),
            counted(summary.warning, "warning"),
            counted(summary.info, "remark"),
        )
    )
    lines = ["## kvtool check", "", f"{counts} in {counted(summary.files, 'file')}.", ""]
    rows = _rows(report)
    if rows:
        lines += ["| | rule | model | place | message |", "| --- | --- | --- | --- | --- |"]
    for path, finding, others in rows[:_LONGEST_SUMMARY]:
        alike = f" (and {counted(len(others), 'other')} alike)" if others else ""
        cells = (
            finding.severity,
            f"{finding.code} {finding.name}",
            shown_path(path),
            qualified_name(finding.location),
            finding.message + alike,
        )
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    if len(rows) > _LONGEST_SUMMARY:
        lines += ["", f"and {len(rows) - _LONGEST_SUMMARY} more"]
    return "\n".join(lines) + "\n"


def step_outputs(report: CheckReport) -> str:
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
