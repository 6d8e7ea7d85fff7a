"""`kvtool targets` lists what `lower --target` knows, as data on standard output."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from onnx_kvtool.targets.releases import releases


@pytest.mark.long
def test_json_has_the_keys_of_the_contract(kvtool) -> None:
    result = kvtool("targets", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert (answer["schema_version"], answer["command"]) == (1, "targets")
    assert len(answer["targets"]) == len(releases())
    entry = next(t for t in answer["targets"] if t["version"] == "1.17.3")
    contract = ("runtime", "version", "max_opset", "max_ir_version", "evidence", "notes")
    assert tuple(entry)[:6] == contract
    assert [entry[key] for key in contract[:5]] == ["onnxruntime", "1.17.3", 20, 9, "measured"]


@pytest.mark.long
def test_what_is_not_known_is_null_in_json_and_a_dash_in_text(kvtool) -> None:
    entries = json.loads(kvtool("targets", "--format", "json").stdout)["targets"]
    entry = next(t for t in entries if t["version"] == "10.14")
    assert (entry["max_opset"], entry["max_ir_version"]) == (None, None)
    line = next(line for line in kvtool("targets").stdout.splitlines() if " 10.14 " in line)
    assert line.split()[:5] == ["tensorrt", "10.14", "-", "-", "documented"]


def test_text_has_one_line_per_release_under_a_header(kvtool) -> None:
    result = kvtool("targets")
    assert (result.exit_code, result.stderr) == (0, "")
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["runtime", "version", "opset", "IR", "version", "evidence", "limits"]
    assert [tuple(line.split()[:2]) for line in lines] == [
        (release.runtime, release.version) for release in releases()
    ]


def test_limits_are_counted_without_a_name_and_told_in_words_with_one(kvtool) -> None:
    plain = kvtool("targets").stdout
    assert all(len(line) <= 80 for line in plain.splitlines())
    result = kvtool("targets", "tensorrt")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = [release for release in releases() if release.runtime == "tensorrt"]
    assert "onnxruntime" not in result.stdout
    for release in shown:
        assert release.version in result.stdout
        assert all(one.reason in result.stdout for one in release.limits if not one.listed)
        assert all(one.operator in result.stdout for one in release.limits)


def test_one_release_is_shown_with_what_it_does_not_compute(kvtool) -> None:
    text = kvtool("targets", "tract@0.23").stdout
    assert "fix the dimensions that they are computed from with `--dim`" in text
    assert "tract 0.23.9 does not compute: AffineGrid, Bernoulli" in text
    entries = json.loads(kvtool("targets", "tract", "--format", "json").stdout)["targets"]
    assert [entry["version"] for entry in entries] == ["0.23.9"]
    pad = next(limit for limit in entries[0]["limits"] if limit["op"] == "Pad")
    assert pad["help"] == "fix the dimensions that they are computed from with `--dim`"


def test_an_unsupported_release_says_why(kvtool) -> None:
    entry, _ = json.loads(kvtool("targets", "opencv", "--format", "json").stdout)["targets"]
    assert "wrongly without a word" in entry["unsupported"]
    assert (
        f"opencv 4.12.0 is no target: it {entry['unsupported']}"
        in kvtool("targets", "opencv").stdout
    )


def test_a_name_of_no_runtime_is_wrong_usage(kvtool) -> None:
    result = kvtool("targets", "trakt")
    assert result.exit_code == 2
    assert "kvtool knows no runtime `trakt`" in result.stderr


@pytest.mark.long
def test_json_needs_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys; from onnx_kvtool.cli import app; "
        "app(['targets', '--format', 'json'], standalone_mode=False); "
        "print({'numpy', 'onnx', 'onnx_ir', 'onnxruntime', 'rich'} & set(sys.modules), "
        "file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == "set()\n"
