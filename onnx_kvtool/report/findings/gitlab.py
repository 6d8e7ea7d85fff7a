"""Findings as a code quality report of GitLab."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import CheckReport
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.paths import shown_path

__all__ = ["to_gitlab"]

_SEVERITIES: dict[Severity, str] = {"error": "major", "warning": "minor", "info": "info"}


def to_gitlab(report: CheckReport) -> str:
    """Return a JSON list with an object for each finding; its fingerprint is unique in the list."""
    lines = [_line(f, shown_path(file.path)) for file in report.files for f in file.findings]
    return json.dumps(lines, indent=2)


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
