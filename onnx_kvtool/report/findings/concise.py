"""One line for each finding: `path:graph:node: CODE message`."""

from __future__ import annotations

from onnx_kvtool.core.words import escape
from onnx_kvtool.lint.report import FileReport
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.writer import Writer

__all__ = ["ConciseWriter"]


class ConciseWriter(Writer):
    """Parts of the place that a finding does not have are left out, and names are escaped."""

    in_lines = True

    def file(self, file: FileReport) -> str:
        """Return one line for each finding."""
        text = ""
        for finding in file.findings:
            place = qualified_name(finding.location)
            where = ":".join(part for part in (file.path, place) if part)
            text += escape(f"{where}: {finding.code} {finding.message}") + "\n"
        return text
