"""The formats of findings that are data; text for people is printed by `report.text`."""

from __future__ import annotations

from collections.abc import Callable

from onnx_kvtool.core.table import Table
from onnx_kvtool.lint.report import CheckReport
from onnx_kvtool.report.findings.concise import to_concise
from onnx_kvtool.report.findings.github import to_github
from onnx_kvtool.report.findings.gitlab import to_gitlab
from onnx_kvtool.report.findings.json import to_check_json
from onnx_kvtool.report.findings.jsonl import to_jsonl
from onnx_kvtool.report.findings.junit import to_junit
from onnx_kvtool.report.findings.sarif import to_sarif

__all__ = ["RENDERERS"]

RENDERERS: Table[str, Callable[[CheckReport], str]] = Table(
    "format",
    [
        ("concise", to_concise),
        ("json", to_check_json),
        ("jsonl", to_jsonl),
        ("sarif", to_sarif),
        ("github", to_github),
        ("gitlab", to_gitlab),
        ("junit", to_junit),
    ],
)
"""What makes the text of a report, by format; without a line end after the last line."""
