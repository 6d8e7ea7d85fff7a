"""The formats of findings that are data; text for people is printed by `report.text`."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
from onnx_kvtool.report.findings.concise import ConciseWriter
from onnx_kvtool.report.findings.github import GithubWriter
from onnx_kvtool.report.findings.gitlab import GitlabWriter
from onnx_kvtool.report.findings.json import JsonWriter
from onnx_kvtool.report.findings.jsonl import JsonLinesWriter
from onnx_kvtool.report.findings.junit import JunitWriter
from onnx_kvtool.report.findings.sarif import SarifWriter
from onnx_kvtool.report.findings.writer import Writer

__all__ = ["WRITERS"]

WRITERS: Table[str, type[Writer]] = Table(
    "format",
    [
        ("concise", ConciseWriter),
        ("json", JsonWriter),
        ("jsonl", JsonLinesWriter),
        ("sarif", SarifWriter),
        ("github", GithubWriter),
        ("gitlab", GitlabWriter),
        ("junit", JunitWriter),
    ],
)
"""What makes the text of a report, by format."""
