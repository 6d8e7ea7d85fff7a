"""Findings as one line each, JSON, JSON lines, and for GitLab, JUnit, reviewdog and SARIF."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterator
from typing import Any, ClassVar
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from onnx_kvtool import __version__
from onnx_kvtool.core.diagnostic import Location, Severity
from onnx_kvtool.core.record import plain
from onnx_kvtool.core.words import escape
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import FileReport, Tally
from onnx_kvtool.lint.rule import RULES, Rule, markdown
from onnx_kvtool.report.blocks import groups_alike
from onnx_kvtool.report.findings.writer import (
    Spool,
    Writer,
    placed_message,
    qualified_name,
    shown_path,
    uri,
)
from onnx_kvtool.report.json import headed

# One line for each finding: `path:graph:node: CODE message`.


class ConciseWriter(Writer):
    """Writes one line for each finding; parts of the place that are unknown are left out."""

    in_lines = True

    def file(self, file: FileReport) -> str:
        """Return one line for each finding."""
        text = ""
        for finding in file.findings:
            place = qualified_name(finding.location)
            where = ":".join(part for part in (file.path, place) if part)
            text += escape(f"{where}: {finding.code} {finding.message}") + "\n"
        return text


# Findings as one JSON object, with the header that every command shares.


class JsonWriter(Writer):
    """The JSON report of the command-line contract, with counts if `statistics` is set."""

    depth = 1

    def begin(self) -> str:
        """Return the header."""
        return headed("check", {}).removesuffix("\n}") + ',\n  "files": '

    def file(self, file: FileReport) -> str:
        """Return one file."""
        return self.items([file.to_json()])

    def end(self) -> Iterator[str]:
        """Yield the summary."""
        yield self.end_of_list()
        keys: dict[str, Any] = {
            "summary": self.tally.summary.to_json(),
            "fail_on": self.tally.fail_on,
            "notes": self.tally.notes,
        }
        if self.tally.shard is not None:
            keys["shard"] = self.tally.shard
        if self.statistics:
            keys["statistics"] = plain(self.tally.counts())
        yield "," + json.dumps(keys, indent=2).removeprefix("{") + "\n"


# Findings as JSON lines: one object for each finding, as in JSON, with its `path` in front.


class JsonLinesWriter(Writer):
    """One line of ASCII for each finding."""

    in_lines = True

    def file(self, file: FileReport) -> str:
        """Return the findings of one file."""
        return "".join(
            json.dumps({"path": file.path, **finding.to_json()}) + "\n" for finding in file.findings
        )


# Findings as a code quality report of GitLab.


_SEVERITIES: dict[Severity, str] = {"error": "major", "warning": "minor", "info": "info"}


class _ListWriter(Writer):
    """A JSON list with an object for each finding, between a head and a tail."""

    head: ClassVar[str] = ""
    tail: ClassVar[str] = "\n"

    def begin(self) -> str:
        """Return the head."""
        return self.head

    def file(self, file: FileReport) -> str:
        """Return the findings of one file."""
        path = shown_path(file.path)
        return self.items([self.line(finding, path) for finding in file.findings])

    def end(self) -> Iterator[str]:
        """Yield the end of the list, and the tail."""
        yield self.end_of_list() + self.tail

    @staticmethod
    def line(finding: Finding, path: str) -> dict[str, Any]:
        """Return the object of a finding."""
        raise NotImplementedError


class GitlabWriter(_ListWriter):
    """A code quality report: a JSON list; the fingerprint of a finding is unique in the list."""

    @staticmethod
    def line(finding: Finding, path: str) -> dict[str, Any]:
        """Return the object of a finding."""
        text = f"{path}\0{finding.fingerprint}"
        return {
            "description": f"{finding.code} {finding.name}: {placed_message(finding)}",
            "check_name": finding.code,
            "fingerprint": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
            "severity": _SEVERITIES[finding.severity],
            "location": {"path": path, "lines": {"begin": 1}},
        }


# Findings in the Reviewdog Diagnostic Format.


class RdjsonWriter(_ListWriter):
    """A `DiagnosticResult` of reviewdog, `-f=rdjson`; each finding is at line 1 of its file."""

    depth = 1
    head = '{\n  "source": {"name": "kvtool"},\n  "diagnostics": '
    tail = "\n}\n"

    @staticmethod
    def line(finding: Finding, path: str) -> dict[str, Any]:
        """Return the object of a finding."""
        text = placed_message(finding)
        return {
            "message": f"{text}\nhelp: {finding.help}" if finding.help else text,
            "location": {"path": path, "range": {"start": {"line": 1}}},
            "severity": finding.severity.upper(),
            "code": {"value": f"{finding.code} {finding.name}", "url": finding.url},
        }


# Findings as JUnit XML: a suite for each model, a case for each rule that found something.


_CASES = ("testcase", "testcase/failure", "testcase/error")
"""What the counts of a suite count."""


class JunitWriter(Writer):
    """A document where a rule fails if it found something at or above `fail_on`.

    Findings below that are in the output of a case that passes. A model without findings has one
    case, which passes; a file that was not checked to the end has an error.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._suites = Spool()
        self._counts = dict.fromkeys(("tests", "failures", "errors"), 0)

    def file(self, file: FileReport) -> str:
        """Keep the suite of one file: the counts stand in front of all."""
        self.suite(self._of_file(file))
        return ""

    def suite(self, suite: Element) -> None:
        """Keep a suite."""
        for count in self._counts:
            self._counts[count] += int(suite.get(count, "0"))
        indent(suite, level=1)
        self._suites.add("  " + tostring(suite, encoding="unicode").rstrip() + "\n")

    def end(self) -> Iterator[str]:
        """Yield the document."""
        yield '<?xml version="1.0" encoding="UTF-8"?>\n'
        root = Element("testsuites", name="kvtool")
        for count, number in self._counts.items():
            root.set(count, str(number))
        yield tostring(root, encoding="unicode").removesuffix(" />") + ">\n"
        yield from self._suites.pieces()
        yield "</testsuites>\n"

    def _of_file(self, file: FileReport) -> Element:
        path = escape(shown_path(file.path))
        suite = Element("testsuite", name=path)
        for found in groups_alike(file.findings, lambda finding: finding.code):
            name = f"{found[0].code} {found[0].name}"
            _case(SubElement(suite, "testcase", classname=path, name=name), found, self.tally)
        if file.failure is not None:
            case = SubElement(suite, "testcase", classname=path, name="kvtool")
            SubElement(case, "error", message=escape(file.failure.message))
        elif not file.findings:
            SubElement(suite, "testcase", classname=path, name="kvtool")
        for count, cases in zip(self._counts, _CASES, strict=True):
            suite.set(count, str(len(suite.findall(cases))))
        return suite


def _case(case: Element, found: list[Finding], tally: Tally) -> None:
    """Fill in what one rule found in one model."""
    text = "\n".join(_junit_line(finding) for finding in found)
    failing = [finding for finding in found if tally.fails(finding)]
    if failing:
        message = escape(failing[0].message)
        SubElement(case, "failure", type=failing[0].severity, message=message).text = text
    else:
        SubElement(case, "system-out").text = text


def _junit_line(finding: Finding) -> str:
    text = f"{finding.severity}: {placed_message(finding)}"
    if finding.help:
        text += f" (help: {finding.help})"
    return escape(text)


# Findings as SARIF 2.1.0, which code scanning reads.


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
"""The level of a result, by severity."""

INDICES = {code: index for index, code in enumerate(RULES)}
"""The position of each rule in a log."""

_FINGERPRINT = "kvtool/v1"
_ALERT = "primaryLocationLineHash"
"""The only fingerprint that GitHub reads. Without it, GitHub hashes the start of the file."""


class SarifWriter(_ListWriter):
    """A SARIF log with one run.

    A model has no lines, and code scanning wants a region: each result points at line 1 of the
    file, and names its place as a logical location. Files are relative to the current directory,
    which is taken for the root of the repository.
    """

    depth = 3

    def begin(self) -> str:
        """Return the description of the tool."""
        run = {
            "tool": {
                "driver": {
                    "name": "kvtool",
                    "version": __version__,
                    "semanticVersion": __version__,
                    "rules": [_rule(rule) for rule in RULES.values()],
                }
            },
            "columnKind": "unicodeCodePoints",
        }
        log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
        head = json.dumps(log, indent=2).removesuffix("\n    }\n  ]\n}")
        return head + ',\n      "results": '

    def end(self) -> Iterator[str]:
        """Yield the end of the run: whether all files were checked."""
        yield self.end_of_list()
        notifications = [
            {"level": "error", "message": {"text": f"{path}: {failure.message}"}}
            for path, failure in self.tally.failures
        ]
        invocation = {
            "executionSuccessful": not notifications,
            "toolExecutionNotifications": notifications,
        }
        last = json.dumps({"invocations": [invocation]}, indent=2)
        yield "," + textwrap.indent(last.removeprefix("{"), "    ") + "\n  ]\n}\n"

    @staticmethod
    def line(finding: Finding, path: str) -> dict[str, Any]:
        """Return the result of a finding."""
        text = finding.message
        if finding.help:
            text += f"; {finding.help}"
        return {
            "ruleId": finding.code,
            "ruleIndex": INDICES[finding.code],
            "level": LEVELS[finding.severity],
            "message": {"text": text[:1].upper() + text[1:] + "."},
            "locations": [_location(finding.location, path)],
            "partialFingerprints": {
                _FINGERPRINT: finding.fingerprint,
                _ALERT: finding.identity or finding.fingerprint,
            },
            "properties": {"group": finding.group},
        }


def _rule(rule: Rule) -> dict[str, Any]:
    page = markdown(rule)
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": f"{rule.summary}."},
        "fullDescription": {"text": rule.section("What it does") or f"{rule.summary}."},
        "help": {"text": page, "markdown": page},
        "helpUri": rule.url,
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {
            "tags": ["onnx", rule.basis],
            "precision": "medium" if rule.basis == "heuristic" else "very-high",
        },
    }


def _location(place: Location, path: str) -> dict[str, Any]:
    address, is_relative = uri(path)
    artifact = {"uri": address}
    if is_relative:
        artifact["uriBaseId"] = "%SRCROOT%"
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": 1}}
    }
    if name := qualified_name(place):
        logical = {"fullyQualifiedName": name, "kind": _kind(place)}
        if label := place.node_label or place.value:
            logical["name"] = label
        location["logicalLocations"] = [logical]
    return location


def _kind(place: Location) -> str:
    if place.node_label is not None:
        return "element"  # SARIF's kind for parts of a document
    return "object" if place.value is None else "value"
