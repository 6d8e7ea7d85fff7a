"""Findings as JUnit XML: a suite for each model, a case for each rule that found something."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import CheckReport, FileReport
from onnx_kvtool.report.escape import escape
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.paths import shown_path

__all__ = ["to_junit"]


def to_junit(report: CheckReport) -> str:
    """Return a document in which a rule fails where it found something at or above `fail_on`.

    Findings below stand in the output of a case that passes. A model without any has one case,
    which passes; a file that was not checked to the end has an error.
    """
    root = Element("testsuites", name="kvtool")
    for file in report.files:
        _suite(root, file, report)
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode")


def _suite(root: Element, file: FileReport, report: CheckReport) -> None:
    path = escape(shown_path(file.path))
    suite = SubElement(root, "testsuite", name=path)
    by_rule: dict[str, list[Finding]] = {}
    for finding in file.findings:
        by_rule.setdefault(finding.code, []).append(finding)
    for found in by_rule.values():
        name = f"{found[0].code} {found[0].name}"
        _case(SubElement(suite, "testcase", classname=path, name=name), found, report)
    if file.failure is not None:
        case = SubElement(suite, "testcase", classname=path, name="kvtool")
        SubElement(case, "error", message=escape(file.failure.message))
    elif not by_rule:
        SubElement(suite, "testcase", classname=path, name="kvtool")
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))


def _case(case: Element, found: list[Finding], report: CheckReport) -> None:
    """Fill in what one rule found in one model."""
    text = "\n".join(_line(finding) for finding in found)
    failing = [finding for finding in found if report.fails(finding)]
    if failing:
        message = escape(failing[0].message)
        SubElement(case, "failure", type=failing[0].severity, message=message).text = text
    else:
        SubElement(case, "system-out").text = text


def _line(finding: Finding) -> str:
    place = qualified_name(finding.location)
    text = f"{finding.severity}: {place}: " if place else f"{finding.severity}: "
    text += finding.message
    if finding.help:
        text += f" (help: {finding.help})"
    return escape(text)
