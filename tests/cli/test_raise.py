"""`kvtool raise` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.commands.test_raise import _model

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "models"


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(_model(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
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


@pytest.mark.long
def test_json_goes_to_standard_output(kvtool, path: str) -> None:
    result = kvtool("raise", path, "--format", "json", "--dry-run", "--assume", "contiguous")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["command"] == "raise"
    assert [done["node"] for done in found["raised"]] == ["write_present", "write_w"]
    assert (found["refused"], found["output"]) == ([], None)


@pytest.mark.long
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


@pytest.mark.long
def test_nothing_to_raise_is_no_failure(kvtool, path: str) -> None:
    raised = path.replace(".onnx", ".raised.onnx")
    assert kvtool("raise", path, "--assume", "contiguous").exit_code == 0
    result = kvtool("raise", raised)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"nothing to raise: {raised}, opset 24; no candidate")


@pytest.mark.long
def test_layers_whose_proofs_differ_in_names_only_share_one(kvtool, tmp_path: Path) -> None:
    path = FIXTURES / "torch_static" / "hf" / "llama_static__dynamo_op18.onnx"
    options = ("--no-verify", "--dry-run")
    lines = kvtool("raise", str(path), *options).stderr.splitlines()
    proofs = [line for line in lines if line.startswith("proof of node_ScatterND")]
    assert len(proofs) == 4
    assert all(
        line.startswith("proof of node_ScatterND_125 and 3 others alike: ") for line in proofs
    )

    found = json.loads(kvtool("raise", str(path), *options, "--format", "json").stdout)
    assert len({tuple(done["proof"]) for done in found["raised"]}) == 4

    proofs = [line for line in lines if line.startswith("proof of node_Softmax_188 and 1 other")]
    assert proofs[0].endswith("the queries are `add_127`")
    assert len(proofs) == len(found["attention"][0]["proof"]) == 7
    assert [(done["form"], done["mask"]) for done in found["attention"]] == [("full", "causal")] * 2


def test_proofs_about_other_sizes_are_told_apart(kvtool, tmp_path: Path) -> None:
    layers = "".join(
        f"i{n} = Expand (w4, s{n}) p{n} = ScatterElements <axis = 1> (c{n}, i{n}, u{n}) "
        for n in range(2)
    )
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
        decoder (float[B,7,5] c0, float[B,1,5] u0, float[B,7,3] c1, float[B,1,3] u1, int64[B] w)
            => (float[B,7,5] p0, float[B,7,3] p1) {{
        axes = Constant <value_ints = [1, 2]> () w4 = Unsqueeze (w, axes)
        s0 = Shape (u0) s1 = Shape (u1) {layers} }}""")
    onnx.save(model, tmp_path / "m.onnx")
    result = kvtool("raise", str(tmp_path / "m.onnx"), "--no-verify", "--dry-run")
    lines = result.stderr.splitlines()
    assert "proof of #5: axis 2 is written whole: it has size `5` in both" in lines
    assert "proof of #7: axis 2 is written whole: it has size `3` in both" in lines
