"""The formats of findings, and reports put together from parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from onnx_kvtool.core.choices import MergedFormat
from onnx_kvtool.core.diagnostic import Diagnostic, Location, Severity
from onnx_kvtool.core.tables import Table
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import Failure, FileReport
from onnx_kvtool.report.findings.formats import (
    INDICES,
    LEVELS,
    ConciseWriter,
    GitlabWriter,
    JsonLinesWriter,
    JsonWriter,
    JunitWriter,
    RdjsonWriter,
    SarifWriter,
)
from onnx_kvtool.report.findings.github import GithubWriter
from onnx_kvtool.report.findings.writer import Writer

# The formats of findings as data; `report.text` prints text for people.


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
        ("rdjson", RdjsonWriter),
    ],
)
"""The writer of each format."""


# Merging reports in formats that contain less than JSON.
#
# JSON contains everything, so that parts in JSON go through the writers of any format. Reports read
# from SARIF, JUnit or JSON lines are merged into the same format only.


_NO = 1
"""Exit code for a file that was not checked to the end: these formats do not contain it."""


class Merger(Writer):
    """A writer that also accepts whole reports, and counts their findings."""

    def report(self, data: Any) -> str:
        """Return the text of one more report."""
        raise NotImplementedError

    def _count(self, path: str, severities: Sequence[Severity], failure: str | None = None) -> None:
        """Add the findings of a file to the tally, by severity."""
        found = tuple(
            Finding(Diagnostic("", severity, Location(), "", None), "", "")
            for severity in severities
        )
        failed = None if failure is None else Failure(failure, None, _NO)
        self.tally.add(FileReport(path, found, failure=failed))

    def _count_each(self, found: Iterable[tuple[str, Severity]]) -> None:
        """Add findings, each by its file and severity."""
        by_path: dict[str, list[Severity]] = {}
        for path, severity in found:
            by_path.setdefault(path, []).append(severity)
        for path, severities in by_path.items():
            self._count(path, severities)


class _SarifMerger(SarifWriter, Merger):
    """One run with the results of all; the rules are those of this version."""

    def report(self, data: Any) -> str:
        """Return the results of a log."""
        results = [result for run in data["runs"] for result in run["results"]]
        severities: dict[str, Severity] = {level: name for name, level in LEVELS.items()}
        found = []
        for result in results:
            result.pop("ruleIndex", None)
            if result["ruleId"] in INDICES:
                result["ruleIndex"] = INDICES[result["ruleId"]]
            place = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            found.append((place, severities.get(result["level"], "warning")))
        self._count_each(found)
        for run in data["runs"]:
            for invocation in run["invocations"]:
                for note in invocation["toolExecutionNotifications"]:
                    path, _, message = note["message"]["text"].partition(": ")
                    self._count(path, (), message)
        return self.items(results)


class _JunitMerger(JunitWriter, Merger):
    """The suites of all."""

    def report(self, data: Element) -> str:
        """Keep the suites of a document."""
        for suite in data:
            cases = [case for case in suite if case.find("failure") is not None]
            error = suite.find("testcase/error")
            failure = None if error is None else error.get("message", "")
            self._count(suite.get("name", ""), ["error"] * len(cases), failure)
            self.suite(suite)
        return ""


class _LinesMerger(JsonLinesWriter, Merger):
    """The lines of all."""

    def report(self, data: list[dict[str, Any]]) -> str:
        """Return the lines of a report."""
        self._count_each((line["path"], line["severity"]) for line in data)
        return "".join(json.dumps(line) + "\n" for line in data)


MERGERS: Table[MergedFormat, type[Merger]] = Table(
    "format of a report that is merged as it is",
    [("jsonl", _LinesMerger), ("sarif", _SarifMerger), ("junit", _JunitMerger)],
)
"""The merger of each format other than JSON."""
