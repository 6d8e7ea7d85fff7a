"""Findings as JSON lines: one object for each finding, as in JSON, with its `path` in front."""

from __future__ import annotations

import json

from onnx_kvtool.lint.report import FileReport
from onnx_kvtool.report.findings.writer import Writer

__all__ = ["JsonLinesWriter"]


class JsonLinesWriter(Writer):
    """One line of ASCII for each finding."""

    in_lines = True

    def file(self, file: FileReport) -> str:
        """Return the findings of one file."""
        return "".join(
            json.dumps({"path": file.path, **finding.to_json()}) + "\n" for finding in file.findings
        )
