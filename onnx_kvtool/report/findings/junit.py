"""Findings as JUnit XML: a suite for each model, a case for each rule that found something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from onnx_kvtool.core.words import escape
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import FileReport, Tally
from onnx_kvtool.report.findings.names import qualified_name
from onnx_kvtool.report.findings.paths import shown_path
from onnx_kvtool.report.findings.writer import Spool, Writer

__all__ = ["JunitWriter"]


class JunitWriter(Writer):
    """A document in which a rule fails where it found something at or above `fail_on`.

    Findings below stand in the output of a case that passes. A model without any has one case,
    which passes; a file that was not checked to the end has an error.
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
        by_rule: dict[str, list[Finding]] = {}
        for finding in file.findings:
            by_rule.setdefault(finding.code, []).append(finding)
        for found in by_rule.values():
            name = f"{found[0].code} {found[0].name}"
            _case(SubElement(suite, "testcase", classname=path, name=name), found, self.tally)
        if file.failure is not None:
            case = SubElement(suite, "testcase", classname=path, name="kvtool")
            SubElement(case, "error", message=escape(file.failure.message))
        elif not by_rule:
            SubElement(suite, "testcase", classname=path, name="kvtool")
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
        return suite


def _case(case: Element, found: list[Finding], tally: Tally) -> None:
    """Fill in what one rule found in one model."""
    text = "\n".join(_line(finding) for finding in found)
    failing = [finding for finding in found if tally.fails(finding)]
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
