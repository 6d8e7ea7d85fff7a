"""`kvtool targets` lists what `lower --target` knows, as data on standard output."""

from __future__ import annotations

import json
import subprocess
import sys

from onnx_kvtool.targets.target import releases


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
