"""Findings as JSON lines: one object for each finding, as in JSON, with its `path` in front."""

from __future__ import annotations

import json

from onnx_kvtool.lint.report import CheckReport

__all__ = ["to_jsonl"]


def to_jsonl(report: CheckReport) -> str:
    """Return one line of ASCII for each finding; "" when there is none."""
    return "\n".join(
        json.dumps({"path": file.path, **finding.to_json()})
        for file in report.files
        for finding in file.findings
    )
