"""Findings as SARIF 2.1.0, which code scanning reads."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from onnx_kvtool import __version__
from onnx_kvtool.core.diagnostic import Location, Severity
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import FileReport
from onnx_kvtool.lint.rule import Rule, markdown
from onnx_kvtool.lint.table import RULES
from onnx_kvtool.report.findings.json import ListInParts
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.paths import uri
from onnx_kvtool.report.findings.writer import Writer

__all__ = ["LEVELS", "SarifWriter"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
"""The level of a result, by severity."""

_FINGERPRINT = "kvtool/v1"
_ALERT = "primaryLocationLineHash"
"""The only one that GitHub reads. Unless it is there, GitHub hashes the first bytes of the file."""


class SarifWriter(Writer):
    """A SARIF log with one run.

    A model has no lines, so that each result points at line 1 of the file, as code scanning asks
    for a region, and names its place as a logical location. Files are relative to the current
    directory, which is taken for the root of the repository.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.results = ListInParts(3)
        self.indices = {code: index for index, code in enumerate(RULES)}

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

    def file(self, file: FileReport) -> str:
        """Return the results of one file."""
        return self.results.items(
            [_result(one, file.path, self.indices[one.code]) for one in file.findings]
        )

    def end(self) -> Iterator[str]:
        """Yield how the run went."""
        yield self.results.end()
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


def _rule(rule: Rule) -> dict[str, Any]:
    page = markdown(rule)
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": f"{rule.summary}."},
        "fullDescription": {"text": rule.section("What it does") or f"{rule.summary}."},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": ["onnx", rule.basis], "precision": _precision(rule)},
    }


def _precision(rule: Rule) -> str:
    """Return how often code scanning may expect a finding to be right."""
    return "medium" if rule.basis == "heuristic" else "very-high"


def _result(finding: Finding, path: str, index: int) -> dict[str, Any]:
    text = finding.message
    if finding.help:
        text += f"; {finding.help}"
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": text[:1].upper() + text[1:] + "."},
        "locations": [_location(finding.location, path)],
        "partialFingerprints": {
            _FINGERPRINT: finding.fingerprint,
            _ALERT: finding.identity or finding.fingerprint,
        },
        "properties": {"group": finding.group},
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
        return "element"  # of the kinds that SARIF knows, the one for parts of a document
    return "object" if place.value is None else "value"
