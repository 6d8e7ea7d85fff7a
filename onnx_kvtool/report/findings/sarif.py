"""Findings as SARIF 2.1.0, which code scanning reads."""

from __future__ import annotations

import json
from typing import Any

from onnx_kvtool import __version__
from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.location import Location
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.page import markdown
from onnx_kvtool.lint.report import CheckReport
from onnx_kvtool.lint.rule import Rule
from onnx_kvtool.lint.table import RULES
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.paths import uri

__all__ = ["to_sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
_FINGERPRINT = "kvtool/v1"


def to_sarif(report: CheckReport) -> str:
    """Return a SARIF log with one run.

    A model has no lines, so that each result points at line 1 of the file, as code scanning asks
    for a region, and names its place as a logical location. Files are relative to the current
    directory, which is taken for the root of the repository.
    """
    codes = list(RULES)
    notifications = [
        {"level": "error", "message": {"text": f"{path}: {failure.message}"}}
        for path, failure in report.failures
    ]
    run = {
        "tool": {
            "driver": {
                "name": "kvtool",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in RULES.values()],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not notifications,
                "toolExecutionNotifications": notifications,
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(finding, file.path, codes.index(finding.code))
            for file in report.files
            for finding in file.findings
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    page = markdown(rule)
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": f"{rule.summary}."},
        "fullDescription": {"text": rule.section("What it does") or f"{rule.summary}."},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
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
        "level": _LEVELS[finding.severity],
        "message": {"text": text[:1].upper() + text[1:] + "."},
        "locations": [_location(finding.location, path)],
        "partialFingerprints": {_FINGERPRINT: finding.fingerprint},
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
