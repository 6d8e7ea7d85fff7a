"""A baseline holds what was there before, file by file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import FileReport
from onnx_kvtool.lint.settings.baseline import Baseline, read_baseline


def finding(mark: str) -> Finding:
    return Finding(
        Diagnostic("KV003", "error", Location("g", "n", 0), "m"), "bad-mode", "", None, mark
    )


def write_baseline(path: str, files: Iterable[FileReport]) -> int:
    baseline = Baseline(path)
    for file in files:
        baseline.add(file)
    return baseline.write()


def test_what_is_written_is_known_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    files = [FileReport("a.onnx", (finding("x"), finding("y"))), FileReport("b.onnx")]
    assert write_baseline("../known.json", files) == 2
    monkeypatch.chdir(tmp_path)
    baseline = read_baseline("known.json")
    assert baseline.known("deep/a.onnx") == {"x", "y"}
    assert baseline.known(str(tmp_path / "deep" / "a.onnx")) == {"x", "y"}
    assert baseline.known("a.onnx") == baseline.known("deep/b.onnx") == frozenset()


def test_equal_findings_give_equal_bytes(tmp_path: Path) -> None:
    files = [FileReport("b.onnx", (finding("x"),)), FileReport("a.onnx", (finding("y"),))]
    write_baseline(str(tmp_path / "one.json"), files)
    write_baseline(str(tmp_path / "two.json"), files[::-1])
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "it is no JSON", id="no JSON"),
        pytest.param("[]", "is no baseline of version 1", id="a list"),
        pytest.param(
            '{"baseline_version": 2}', "is no baseline of version 1", id="a later version"
        ),
        pytest.param('{"baseline_version": 1}', "no list of findings", id="no files"),
        pytest.param('{"baseline_version": 1, "files": []}', "no list of", id="files in a list"),
        pytest.param('{"baseline_version": 1, "files": {"a": [1]}}', "no list of", id="numbers"),
        pytest.param("[" * 100_000, "it is no JSON", id="deeply nested"),
    ],
)
def test_what_is_no_baseline_is_wrong_usage(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_baseline(str(tmp_path / "known.json"))


def test_a_missing_baseline_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_baseline(str(tmp_path / "known.json"))
    assert caught.value.help == f"make it with `--write-baseline {tmp_path / 'known.json'}`"


def test_a_baseline_can_be_read_by_people(tmp_path: Path) -> None:
    write_baseline(str(tmp_path / "known.json"), [FileReport("a.onnx", (finding("x"),))])
    data = json.loads((tmp_path / "known.json").read_text(encoding="utf-8"))
    ((line,),) = data["files"].values()
    assert line == {"code": "KV003", "fingerprint": "x", "place": "g, node `n`"}
