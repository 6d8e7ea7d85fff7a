"""One line for each finding: `path:graph:node: CODE message`."""

from __future__ import annotations

from onnx_kvtool.lint.report import CheckReport
from onnx_kvtool.report.escape import escape
from onnx_kvtool.report.findings.names import qualified_name

__all__ = ["to_concise"]


def to_concise(report: CheckReport) -> str:
    """Return one line for each finding; "" when there is none.

    Parts of the place that a finding does not have are left out, and names are escaped.
    """
    lines = []
    for file in report.files:
        for finding in file.findings:
            place = qualified_name(finding.location)
            where = ":".join(part for part in (file.path, place) if part)
            lines.append(escape(f"{where}: {finding.code} {finding.message}"))
    return "\n".join(lines)
