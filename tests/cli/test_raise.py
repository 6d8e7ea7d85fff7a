"""`kvtool raise` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.commands.test_raise import _model


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(_model(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_a_person_sees_what_was_raised_why_and_what_is_missing(kvtool, path: str) -> None:
    result = kvtool("raise", path)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"raised: {path}, opset 18 to 24, IR version 12; 1 update, 1 cand")
    assert "  write_present  1     linear  cache  starts         present" in lines
    assert "proof of write_present: row s of the update goes to `starts[i] + s`" in lines
    assert any(line.startswith("free-positions: decoder, node `write_w`") for line in lines)
    assert "  help: if it holds, grant it with `--assume contiguous:free`" in lines
    assert any(line.startswith("verification: equal in onnxruntime") for line in lines)
    assert lines[-1] == f"written: {path.replace('.onnx', '.raised.onnx')}"


def test_json_goes_to_standard_output(kvtool, path: str) -> None:
    result = kvtool("raise", path, "--format", "json", "--dry-run", "--assume", "contiguous")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["command"] == "raise"
    assert [done["node"] for done in found["raised"]] == ["write_present", "write_w"]
    assert (found["refused"], found["output"]) == ([], None)


def test_a_candidate_that_stays_is_a_failure_where_all_are_required(
    kvtool, path: str, tmp_path: Path
) -> None:
    result = kvtool("raise", path, "--require-all", "-o", str(tmp_path / "out.onnx"))
    assert result.exit_code == 1
    assert result.stderr.startswith("not raised: ")
    assert "nothing was written" in result.stderr
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--opset", "23"], "--opset", id="an opset without TensorScatter"),
        pytest.param(["--assume", "contigous"], "did you mean `contiguous`?", id="a misspelling"),
        pytest.param(["--in-place", "-o", "x.onnx"], "exclude each other", id="two outputs"),
    ],
)
def test_wrong_usage_exits_with_2(kvtool, path: str, arguments: list[str], message: str) -> None:
    result = kvtool("raise", path, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_nothing_to_raise_is_no_failure(kvtool, path: str) -> None:
    raised = path.replace(".onnx", ".raised.onnx")
    assert kvtool("raise", path, "--assume", "contiguous").exit_code == 0
    result = kvtool("raise", raised)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"nothing to raise: {raised}, opset 24; no candidate")
