"""Findings as a code quality report of GitLab."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import FileReport
from onnx_kvtool.report.findings.json import ListInParts
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.paths import shown_path
from onnx_kvtool.report.findings.writer import Writer

__all__ = ["GitlabWriter"]

_SEVERITIES: dict[Severity, str] = {"error": "major", "warning": "minor", "info": "info"}


class GitlabWriter(Writer):
    """A JSON list with an object for each finding; its fingerprint is unique in the list."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._findings = ListInParts(0)

    def file(self, file: FileReport) -> str:
        """Return the findings of one file."""
        path = shown_path(file.path)
        return self._findings.items([_line(finding, path) for finding in file.findings])

    def end(self) -> Iterator[str]:
        """Yield what ends the list."""
        yield self._findings.end() + "\n"


def _line(finding: Finding, path: str) -> dict[str, Any]:
    place = qualified_name(finding.location)
    what = f"{place}: {finding.message}" if place else finding.message
    text = f"{path}\0{finding.fingerprint}"
    return {
        "description": f"{finding.code} {finding.name}: {what}",
        "check_name": finding.code,
        "fingerprint": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": path, "lines": {"begin": 1}},
    }
