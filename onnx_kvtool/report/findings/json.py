"""Findings as one JSON object, with the header that every command shares."""

from __future__ import annotations

from onnx_kvtool.lint.report import CheckReport
from onnx_kvtool.report.json import to_json

__all__ = ["to_check_json"]


def to_check_json(report: CheckReport) -> str:
    """Return the report as the command-line contract fixes it."""
    return to_json("check", report)
