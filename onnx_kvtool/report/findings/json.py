"""Findings as one JSON object, with the header that every command shares."""

from __future__ import annotations

from onnx_kvtool.lint.report import CheckReport
from onnx_kvtool.report.json import headed

__all__ = ["to_check_json"]


def to_check_json(report: CheckReport, *, statistics: bool = False) -> str:
    """Return the report as the command-line contract fixes it; with `statistics`, with counts."""
    return headed("check", report.to_json(statistics=statistics))
