"""The version stands in one place, and everything that names it says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnx_kvtool import __version__
from onnx_kvtool.cli.command import show_version
from onnx_kvtool.report.json import SCHEMA_VERSION

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "fixtures" / "models" / "native" / "llama_static.onnx"


def test_it_is_a_version_that_the_package_index_takes() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", __version__)


def test_the_option_prints_one_line(kvtool) -> None:
    result = kvtool("--version")
    assert (result.stdout, result.stderr) == (f"kvtool {__version__}\n", "")
    assert result.exit_code == 0


@pytest.mark.parametrize("arguments", [["--debug", "--version"], ["--version", "--debug"]])
def test_with_debug_it_prints_what_a_report_of_a_bug_has_to_name(kvtool, arguments) -> None:
    first, *others = kvtool(*arguments).stdout.splitlines()
    assert first == f"kvtool {__version__}"
    named = dict(line.split(" ", 1) for line in others)
    assert {"python", "onnx", "onnx-ir", "onnxruntime", "click"} <= set(named)
    assert all(re.match(r"\d+\.\d+", version) for version in named.values())


def test_a_library_that_is_not_there_is_said(kvtool, monkeypatch) -> None:
    monkeypatch.setitem(show_version.__globals__, "_BASIS", ("no-such-library",))
    assert kvtool("--debug", "--version").stdout.endswith("no-such-library is not installed\n")


def test_it_is_written_once() -> None:
    sources = {path: path.read_text("utf-8") for path in (ROOT / "onnx_kvtool").rglob("*.py")}
    written = [path for path, text in sources.items() if f'"{__version__}"' in text]
    assert [path.relative_to(ROOT).as_posix() for path in written] == ["onnx_kvtool/__init__.py"]
    assert not re.search(
        r"^version\s*=", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )


def test_the_newest_heading_of_the_changelog_is_this_version() -> None:
    headings = re.findall(
        r"^## \[?([^]\s]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert headings[0].lower() == "unreleased" or headings[0] == __version__


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ["lower", MODEL, "--dry-run", "--no-verify", "--format", "json"],
        ["inspect", MODEL, "--format", "json"],
        ["check", MODEL, "--isolated", "--exit-zero", "--format", "json"],
        ["ops", "TensorScatter", "--format", "json"],
        ["rule", "KV001", "--format", "json"],
        ["targets", "--format", "json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_reports_begin_with_it(kvtool, arguments) -> None:
    report = json.loads(kvtool(*arguments).stdout)
    assert list(report)[:3] == ["schema_version", "tool", "command"]
    assert report["tool"] == {"name": "kvtool", "version": __version__}
    assert (report["schema_version"], report["command"]) == (SCHEMA_VERSION, arguments[0])


@pytest.mark.long
def test_sarif_names_it(kvtool) -> None:
    report = json.loads(
        kvtool("check", MODEL, "--isolated", "--exit-zero", "--format", "sarif").stdout
    )
    driver = report["runs"][0]["tool"]["driver"]
    assert driver["version"] == driver["semanticVersion"] == __version__
