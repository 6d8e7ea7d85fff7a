"""`kvtool merge`: one report of many is what one check of all files would have written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx
import pytest

import onnx_kvtool as kv

pytestmark = pytest.mark.long

NAMES = [f"{letter}.onnx" for letter in "abcdefgh"]


def model(path: str, axis: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 5, 7] past, float[2, 3, 1, 7] update, int64[2] write_indices)
            => (float[2, 3, 5, 7] present) {{
            present = TensorScatter <axis: int = {axis}> (past, update, write_indices)
        }}"""
    onnx.save(onnx.parser.parse_model(text), path)


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kvtool):  # type: ignore[no-untyped-def]
    """Write the reports of three shards of eight models, of which the first is wrong."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        model(name, 0 if name == "a.onnx" else 2)
    Path("h.onnx").write_bytes(b"no model")

    def write(form: str) -> list[str]:
        paths = [f"{part}.{form}" for part in (1, 2, 3)]
        for part, path in enumerate(paths, 1):
            kvtool("check", "--isolated", "--shard", f"{part}/3", "--format", form, "-o", path)
        return paths

    return write


def whole(kvtool, form: str) -> str:  # type: ignore[no-untyped-def]
    kvtool("check", "--isolated", "--format", form, "-o", f"whole.{form}")
    return Path(f"whole.{form}").read_text(encoding="utf-8")


def by_path(form: str, text: str) -> object:
    """Return what a report says, whatever the order of its files."""
    if form == "json":
        data = json.loads(text)
        return data["summary"], sorted(data["files"], key=lambda file: file["path"])
    if form == "sarif":
        (run,) = json.loads(text)["runs"]
        run["results"].sort(key=lambda result: json.dumps(result["locations"]) + result["ruleId"])
        return run
    if form == "junit":
        root = ET.fromstring(text)
        suites = sorted((ET.tostring(suite).strip() for suite in root), key=bytes)
        return root.attrib, suites
    return sorted(text.splitlines())


FORMATS = ["json", "jsonl", "sarif", "junit"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_parts_are_the_whole(shards, kvtool, form: str) -> None:  # type: ignore[no-untyped-def]
    merged = kvtool("merge", *shards(form))
    assert by_path(form, merged.stdout) == by_path(form, whole(kvtool, form))
    assert merged.exit_code == 1, "a.onnx has an error"


@pytest.mark.parametrize(
    "form", ["text", "concise", "jsonl", "sarif", "github", "gitlab", "junit", "rdjson"]
)
def test_json_becomes_any_format(shards, kvtool, form: str) -> None:  # type: ignore[no-untyped-def]
    merged = kvtool("merge", *shards("json"), "--format", form)
    alone = whole(kvtool, form)
    if form in FORMATS:
        assert by_path(form, merged.stdout) == by_path(form, alone)
    else:
        assert sorted(merged.stdout.split()) == sorted(alone.split())


def test_it_says_what_a_check_of_all_would_say(shards, kvtool) -> None:  # type: ignore[no-untyped-def]
    merged = kvtool("merge", *shards("json"), "-o", "all.json")
    checked = kvtool("check", "--isolated", "-q")
    assert merged.stderr.startswith("found: ") and "in 8 files" in merged.stderr
    assert merged.exit_code == checked.exit_code == 1
    again = kvtool("merge", "all.json")
    assert by_path("json", again.stdout) == by_path("json", Path("all.json").read_text("utf-8"))


def test_from_python(shards) -> None:  # type: ignore[no-untyped-def]
    report = kv.merge(shards("json"))
    assert sorted(file.path for file in report.files) == NAMES
    assert report.exit_code == 1 and report.summary.files == 8


def without_errors() -> None:
    for name in ("a.onnx", "h.onnx"):
        model(name, 2)


@pytest.mark.parametrize("form", FORMATS)
def test_without_an_error_the_answer_is_yes(shards, kvtool, form: str) -> None:  # type: ignore[no-untyped-def]
    without_errors()
    assert kvtool("merge", *shards(form)).exit_code == 0


def with_text(text: str) -> list[str]:
    Path("x").write_text(text, encoding="utf-8", errors="surrogateescape")
    return ["x"]


SHARD = '{{"command": "check", "files": [], "shard": "{}"}}'


def numbered(*shards: str) -> list[str]:
    for number, shard in enumerate(shards):
        Path(f"{number}").write_text(SHARD.format(shard), encoding="utf-8")
    return [str(number) for number in range(len(shards))]


REFUSED = {
    "a part is missing": (lambda: numbered("1/3", "3/3"), 2, "the report of part 2/3 is missing"),
    "several are missing": (lambda: numbered("2/4"), 2, "part 1/4 is missing, and 2 more"),
    "a part comes twice": (lambda: numbered("1/2", "1/2"), 2, "`0` and `1` both are part 1/2"),
    "parts of two checks": (lambda: numbered("1/2", "2/3"), 2, "of different checks"),
    "two formats": (lambda: [*with_text(""), *numbered("1/1")], 2, "reports of one format"),
    "no file": (lambda: ["none.json"], 3, "`none.json` does not exist"),
    "no report": (lambda: with_text("nothing"), 3, "`x` is no report of `kvtool check`"),
    "the JSON of another command": (
        lambda: with_text('{"command": "inspect"}'),
        3,
        "is no report of `kvtool check`",
    ),
    "the XML of another tool": (lambda: with_text("<testsuites/>"), 3, "is no report"),
    "XML that is not UTF-8": (
        lambda: with_text('<testsuites name="\udcff"/>'),
        3,
        "is no report",
    ),
    "entities": (
        lambda: with_text('<!DOCTYPE a [<!ENTITY b "c">]><testsuites name="kvtool"/>'),
        3,
        "is no report",
    ),
    "the log of another tool": (
        lambda: with_text('{"runs": [{"tool": {"driver": {"name": "x"}}}]}'),
        3,
        "is no report",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path, monkeypatch, kvtool, name: str) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    make, exit_code, message = REFUSED[name]
    result = kvtool("merge", *make())
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert message in result.stderr


def test_one_file_in_two_reports_is_refused(shards, kvtool) -> None:  # type: ignore[no-untyped-def]
    for form in FORMATS:
        kvtool("check", "a.onnx", "--isolated", "--format", form, "-o", f"a.{form}")
        kvtool("check", ".", "--isolated", "--format", form, "-o", f"b.{form}")
        result = kvtool("merge", f"a.{form}", f"b.{form}")
        assert result.exit_code == 2 and "both report on" in result.stderr, form


def test_what_a_format_does_not_hold_is_refused(shards, kvtool) -> None:  # type: ignore[no-untyped-def]
    sarif, junit = shards("sarif"), shards("junit")
    result = kvtool("merge", *sarif, "--format", "json")
    assert result.exit_code == 2 and "SARIF, which cannot become `json`" in result.stderr
    result = kvtool("merge", *junit, "--fail-on", "info")
    assert result.exit_code == 2 and "`--fail-on`" in result.stderr


def changed(data: object, steps: Sequence[str | int], value: object) -> object:
    """Return a report with another value at a place; without it if the value is None."""
    copy = json.loads(json.dumps(data))
    inner = copy
    for step in steps[:-1]:
        inner = inner[step]
    if value is None:
        del inner[steps[-1]]
    else:
        inner[steps[-1]] = value
    return copy


RESULT = ("runs", 0, "results", 0)
NOTE = ("runs", 0, "invocations", 0, "toolExecutionNotifications")
PLACE = ("locations", 0, "physicalLocation", "artifactLocation")
STEPS: dict[str, list[tuple[str | int, ...]]] = {
    "sarif": [
        ("runs",),
        ("runs", 0),
        ("runs", 0, "results"),
        RESULT,
        *((*RESULT, key) for key in ("ruleId", "level", "locations")),
        *((*RESULT, *PLACE[:end]) for end in (2, 3, 4)),
        (*RESULT, *PLACE, "uri"),
        ("runs", 0, "invocations"),
        ("runs", 0, "invocations", 0),
        NOTE,
    ],
    "json": [("files",), ("files", 0), ("files", 0, "path"), ("files", 0, "findings")],
    "jsonl": [(0,), (0, "path"), (0, "severity")],
}


@pytest.mark.parametrize("form", STEPS)
def test_a_report_that_somebody_changed_is_no_bug(shards, kvtool, form: str) -> None:  # type: ignore[no-untyped-def]
    """What is not as `kvtool check` writes it is refused, in part or as a whole."""
    kvtool("check", "a.onnx", "--isolated", "--format", form, "-o", "whole")
    text = Path("whole").read_text("utf-8")
    data = list(map(json.loads, text.splitlines())) if form == "jsonl" else json.loads(text)
    for steps in STEPS[form]:
        for value in (None, 7, "x", [7], {"x": 7}):
            new = changed(data, steps, value)
            lines = map(json.dumps, new) if form == "jsonl" else [json.dumps(new)]  # type: ignore[call-overload]
            Path("new").write_text("\n".join(lines), "utf-8")
            result = kvtool("merge", "new")
            assert result.exit_code in (0, 1, 2, 3), (steps, value, result.stderr)


SUITES = '<testsuites name="kvtool"><testsuite {}>{}</testsuite></testsuites>'
COUNTS = 'tests="1" failures="0" errors="0"'


@pytest.mark.parametrize(
    ("suite", "exit_code"),
    [
        pytest.param((f'name="a.onnx" {COUNTS}', '<testcase name="kvtool"/>'), 0, id="as written"),
        pytest.param((COUNTS, ""), 3, id="no name"),
        pytest.param(('name="a"', ""), 3, id="no counts"),
        pytest.param(('name="a" tests="x" failures="0" errors="0"', ""), 3, id="no number"),
    ],
)
def test_suites_that_somebody_changed(tmp_path, monkeypatch, kvtool, suite, exit_code) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert kvtool("merge", *with_text(SUITES.format(*suite))).exit_code == exit_code


def test_a_directory_is_no_report(tmp_path, monkeypatch, kvtool) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    Path("reports").mkdir()
    result = kvtool("merge", "reports")
    assert result.exit_code == 3
    assert "`reports` is a directory, not a report" in result.stderr
    assert "name a report file in it" in result.stderr
