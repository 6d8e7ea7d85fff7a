"""Each format is what its readers take, whatever stands in the names of a model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from onnx_kvtool.core.diagnostic import Diagnostic, Location, Severity
from onnx_kvtool.lint.finding import Finding, Fix
from onnx_kvtool.lint.report import CheckReport, Failure, FileReport
from onnx_kvtool.report.findings.by_format import WRITERS
from onnx_kvtool.report.findings.github import StepSummary
from onnx_kvtool.report.findings.writer import Writer, blocks, closing, counts
from onnx_kvtool.report.text import text_of_blocks
from tests.grids import each

# The schema of OASIS as the SARIF Multitool (MIT) ships it.
SCHEMA = json.loads((Path(__file__).parent / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
NASTY = 'a%b\n::error::c,"<d>&\x1b[31m|:é\udcff'


def rendered(kind: type[Writer], report: CheckReport, *, statistics: bool = False) -> str:
    writer = kind(report.tally, statistics=statistics)
    return "".join((writer.begin(), *map(writer.file, report.files), *writer.end()))


def finding(
    code: str, severity: Severity, place: Location, message: str, help: str | None = None
) -> Finding:
    fix = Fix("safe", "Do it", lambda: None) if code == "KV010" else None
    diagnostic = Diagnostic(code, severity, place, message, help)
    return Finding(diagnostic, "some-name", f"docs/rules/{code}.md", fix, f"{code}{severity}")


CACHE = Location("main", "cache", 3, "TensorScatter")
REPORT = CheckReport(
    (
        FileReport(
            "models/a b.onnx",
            (
                finding("KV010", "warning", Location("main", None, 5, "Add", "x"), "it warns"),
                finding("KV001", "error", CACHE, "it is wrong", "do better"),
                finding("KV001", "info", Location("main", value="w"), "it may be"),
            ),
        ),
        FileReport("clean.onnx"),
        FileReport("-", (finding("MD400", "error", Location(), "no model"),)),
        FileReport("broken.onnx", failure=Failure("ZeroDivisionError", None, 4, "trace")),
    )
)
HOSTILE = CheckReport(
    (FileReport(NASTY, (finding("KV001", "error", Location(NASTY, NASTY, 0, NASTY), NASTY),)),)
)


def test_concise() -> None:
    assert rendered(WRITERS["concise"], REPORT).splitlines() == [
        "models/a b.onnx:main:#5: KV010 it warns",
        "models/a b.onnx:main:cache: KV001 it is wrong",
        "models/a b.onnx:main:w: KV001 it may be",
        "-: MD400 no model",
    ]


def test_json() -> None:
    data = json.loads(rendered(WRITERS["json"], REPORT))
    assert (data["schema_version"], data["tool"]["name"], data["command"]) == (1, "kvtool", "check")
    assert [file["path"] for file in data["files"]] == [file.path for file in REPORT.files]
    assert data["files"][0]["findings"][1] == {
        "code": "KV001",
        "name": "some-name",
        "severity": "error",
        "message": "it is wrong",
        "help": "do better",
        "location": {
            "graph": "main",
            "node": "cache",
            "index": 3,
            "op": "TensorScatter",
            "value": None,
        },
        "url": "docs/rules/KV001.md",
        "fix": None,
        "fingerprint": "KV001error",
        "identity": "",
        "group": REPORT.files[0].findings[1].group,
    }
    assert data["files"][0]["findings"][0]["fix"] == {"applicability": "safe", "title": "Do it"}
    summary = data["summary"]
    assert (summary["files"], summary["error"], summary["warning"], summary["info"]) == (4, 2, 1, 1)
    assert summary["fixed"] == 0 and data["files"][3]["failure"] == "ZeroDivisionError"


def test_jsonl_is_an_object_a_line() -> None:
    lines = [json.loads(line) for line in rendered(WRITERS["jsonl"], REPORT).splitlines()]
    assert [(line["path"], line["code"]) for line in lines] == [
        ("models/a b.onnx", "KV010"),
        ("models/a b.onnx", "KV001"),
        ("models/a b.onnx", "KV001"),
        ("-", "MD400"),
    ]


RDJSON = {
    "type": "object",
    "required": ["source", "diagnostics"],
    "additionalProperties": False,
    "properties": {
        "source": {"type": "object", "required": ["name"]},
        "diagnostics": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["message", "location", "severity", "code"],
                "additionalProperties": False,
                "properties": {
                    "message": {"type": "string"},
                    "severity": {"enum": ["ERROR", "WARNING", "INFO"]},
                    "code": {
                        "type": "object",
                        "required": ["value"],
                        "properties": {"value": {"type": "string"}, "url": {"type": "string"}},
                    },
                    "location": {
                        "type": "object",
                        "required": ["path", "range"],
                        "additionalProperties": False,
                        "properties": {
                            "path": {"type": "string"},
                            "range": {"const": {"start": {"line": 1}}},
                        },
                    },
                },
            },
        },
    },
}
"""Of the DiagnosticResult of reviewdog, proto/rdf/reviewdog.proto, the part that is written."""


@pytest.mark.parametrize("report", [REPORT, CheckReport(()), HOSTILE], ids=["", "empty", "nasty"])
def test_rdjson_is_what_reviewdog_reads(report: CheckReport) -> None:
    found = json.loads(rendered(WRITERS["rdjson"], report))
    jsonschema.Draft202012Validator(RDJSON).validate(found)
    count = sum(len(file.findings) for file in report.files)
    assert len(found["diagnostics"]) == count


def test_rdjson_names_the_node_the_rule_and_the_remedy() -> None:
    _, second, *_ = json.loads(rendered(WRITERS["rdjson"], REPORT))["diagnostics"]
    assert second == {
        "message": "main:cache: it is wrong\nhelp: do better",
        "location": {"path": "models/a b.onnx", "range": {"start": {"line": 1}}},
        "severity": "ERROR",
        "code": {"value": "KV001 some-name", "url": "docs/rules/KV001.md"},
    }


def sarif(report: CheckReport) -> dict[str, Any]:
    """Return the run of a log that the schema takes, formats of strings included."""
    log = json.loads(rendered(WRITERS["sarif"], report))
    checker = jsonschema.FormatChecker()
    jsonschema.Draft202012Validator(SCHEMA, format_checker=checker).validate(log)
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


@pytest.mark.long
@pytest.mark.parametrize("report", [REPORT, CheckReport(()), HOSTILE], ids=["", "empty", "nasty"])
def test_sarif_is_valid(report: CheckReport) -> None:
    rules = [rule["id"] for rule in sarif(report)["tool"]["driver"]["rules"]]
    for result in sarif(report)["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}


@pytest.mark.long
def test_the_schema_refuses_what_is_no_sarif() -> None:
    log = json.loads(rendered(WRITERS["sarif"], REPORT))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(log)


@pytest.mark.long
def test_sarif_results() -> None:
    run = sarif(REPORT)
    first, second, third, fourth = run["results"]
    assert [result["level"] for result in run["results"]] == ["warning", "error", "note", "error"]
    assert second["message"]["text"] == "It is wrong; do better."
    assert second["partialFingerprints"] == {
        "kvtool/v1": "KV001error",
        "primaryLocationLineHash": "KV001error",
    }
    (location,) = second["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {
        "uri": "models/a%20b.onnx",
        "uriBaseId": "%SRCROOT%",
    }
    (logical,) = location["logicalLocations"]
    assert (logical["name"], logical["fullyQualifiedName"]) == ("cache", "main:cache")
    assert first["locations"][0]["logicalLocations"][0]["name"] == "#5"
    assert third["locations"][0]["logicalLocations"][0]["kind"] == "value"
    assert "logicalLocations" not in fourth["locations"][0]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [n["message"]["text"] for n in invocation["toolExecutionNotifications"]] == [
        "broken.onnx: ZeroDivisionError"
    ]
    rule = run["tool"]["driver"]["rules"][0]
    assert rule["help"]["markdown"].startswith("# KV001 axis-is-batch\n")


@pytest.mark.long
def test_a_file_elsewhere_has_an_absolute_address(tmp_path: Path) -> None:
    path = str(tmp_path / "a.onnx")
    report = CheckReport((FileReport(path, (finding("KV001", "error", CACHE, "m"),)),))
    (result,) = sarif(report)["results"]
    address = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert address == {"uri": Path(path).as_uri()}


def test_github_shows_errors_first() -> None:
    assert rendered(WRITERS["github"], REPORT).splitlines() == [
        (
            "::error file=models/a b.onnx,line=1,title=KV001 some-name::"
            "main:cache: it is wrong%0Ahelp: do better"
        ),
        "::error file=stdin,line=1,title=MD400 some-name::no model",
        "::warning file=models/a b.onnx,line=1,title=KV010 some-name::main:#5: it warns",
        "::notice file=models/a b.onnx,line=1,title=KV001 some-name::main:w: it may be",
    ]


def test_a_name_cannot_forge_a_command() -> None:
    (line,) = rendered(WRITERS["github"], HOSTILE).splitlines()
    properties = line.removeprefix("::error ").split("::", 1)[0]
    assert re.fullmatch(r"file=[^:,]*,line=1,title=[^:,]*", properties)
    assert "\x1b" not in line and "%25b" in line


def summary_of(report: CheckReport) -> str:
    summary = StepSummary()
    for file in report.files:
        summary.add(file)
    return summary.text(report.tally)


def test_the_step_summary_is_a_table() -> None:
    text = summary_of(REPORT)
    assert "2 errors, 1 warning, 1 remark in 4 files." in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert rows[1] == "| error | KV001 some-name | models/a b.onnx | main:cache | it is wrong |"
    assert len(rows) == 5
    (row,) = (line for line in summary_of(HOSTILE).splitlines() if "KV001" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 6 and "<d>" not in row


def test_gitlab() -> None:
    lines = json.loads(rendered(WRITERS["gitlab"], REPORT))
    assert [line["severity"] for line in lines] == ["minor", "major", "info", "major"]
    assert len({line["fingerprint"] for line in lines}) == 4
    assert lines[1] == {
        "description": "KV001 some-name: main:cache: it is wrong",
        "check_name": "KV001",
        "fingerprint": lines[1]["fingerprint"],
        "severity": "major",
        "location": {"path": "models/a b.onnx", "lines": {"begin": 1}},
    }


def test_junit() -> None:
    root = ET.fromstring(rendered(WRITERS["junit"], REPORT))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "2", "1")
    first, clean, stdin, broken = root
    assert [case.get("name") for case in first] == ["KV010 some-name", "KV001 some-name"]
    warning, error = first
    assert warning.find("failure") is None
    assert warning.findtext("system-out") == "warning: main:#5: it warns"
    failure = error.find("failure")
    assert failure is not None and failure.get("message") == "it is wrong"
    assert failure.text == (
        "error: main:cache: it is wrong (help: do better)\ninfo: main:w: it may be"
    )
    assert [case.get("name") for case in clean] == ["kvtool"] and len(clean[0]) == 0
    assert stdin.get("name") == "stdin"
    assert broken.find("testcase/error") is not None


def test_what_fails_follows_fail_on() -> None:
    strict = CheckReport(REPORT.files, fail_on="info")
    assert ET.fromstring(rendered(WRITERS["junit"], strict)).get("failures") == "3"


def test_text() -> None:
    assert text_of_blocks(blocks(REPORT)) == (
        "models/a b.onnx: 3 findings\n"
        "  warning KV010 some-name: main, node `#5` (Add), value `x`: it warns\n"
        "    fix: Do it, with `--fix`\n"
        "  error KV001 some-name: main, node `cache` (TensorScatter): it is wrong\n"
        "    help: do better\n"
        "  info KV001 some-name: main, value `w`: it may be\n"
        "standard input: 1 finding\n"
        "  error MD400 some-name: model: no model\n"
    )
    assert text_of_blocks(closing(REPORT, fails=True)) == (
        "found: 2 errors, 1 warning, 1 remark in 4 files\nfixable: 1 with `--fix`\n"
    )


def test_statistics_are_counts() -> None:
    text = text_of_blocks(counts(REPORT.tally))
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["KV001", "some-name", "error", "2", "0"],
        ["KV010", "some-name", "warning", "1", "1"],
        ["MD400", "some-name", "error", "1", "0"],
    ]
    data = json.loads(rendered(WRITERS["json"], REPORT, statistics=True))
    assert data["statistics"][0] == {
        "code": "KV001",
        "name": "some-name",
        "severity": "error",
        "count": 2,
        "fixable": 0,
    }


@each("name", [*WRITERS])
def test_nasty_names_break_no_format(name: str) -> None:
    text = rendered(WRITERS[name], HOSTILE)
    assert "\x1b" not in text
    text.encode()
    if name == "junit":
        ET.fromstring(text)
    elif name in ("json", "sarif", "gitlab", "jsonl", "rdjson"):
        json.loads(text)
    else:
        assert len(text.splitlines()) == 1


@each("name", [*WRITERS])
def test_every_format_takes_an_empty_report(name: str) -> None:
    assert isinstance(rendered(WRITERS[name], CheckReport(())), str)
