"""Whatever name is unknown is answered with the nearest one that is."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.grids import each

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"

CASES = [
    pytest.param("lowr decoder.onnx", "lower", id="a command"),
    pytest.param("help inspct", "inspect", id="a command to explain"),
    pytest.param("version", "kvtool --version", id="an option written as a command"),
    pytest.param("--colour always targets", "--color", id="a global option"),
    pytest.param("raise exported.onnx --asume contiguous", "--assume", id="an option"),
    pytest.param("lower decoder.onnx --via scatterned", "scatternd", id="a choice"),
    pytest.param("lower decoder.onnx --via SCATTERND", "scatternd", id="a choice in capitals"),
    pytest.param("inspect decoder.onnx --format jsn", "json", id="a format"),
    pytest.param("check decoder.onnx --format sarrif", "sarif", id="a format of check"),
    pytest.param("check decoder.onnx --fail-on warn", "warning", id="a severity"),
    pytest.param(
        "verify decoder.onnx decoder.onnx --runtime onnxruntim", "onnxruntime", id="where"
    ),
    pytest.param("rule KV0O3", "KV003", id="a rule by its code"),
    pytest.param("rule axis-is-bach", "axis-is-batch", id="a rule by its name"),
    pytest.param("check decoder.onnx --select KV0O3", "KV003", id="a code to select"),
    pytest.param("check decoder.onnx --ignore kv1", "KV1", id="a family of codes"),
    pytest.param("check decoder.onnx --config typo.toml", "select", id="a configuration key"),
    pytest.param("check decoder.onnx --config word.toml", "warning", id="a value of a key"),
    pytest.param("check decoder.onnx --config kvtol.toml", "kvtool.toml", id="a configuration"),
    pytest.param("check decoder.onnx --baseline knwn.json", "known.json", id="a baseline"),
    pytest.param("lower decoder.onnx --target onnxruntme@1.17", "onnxruntime", id="a runtime"),
    pytest.param("lower decoder.onnx --target tensorrt==8.6", "tensorrt@8.6", id="a release"),
    pytest.param("check decoder.onnx --target openvno", "openvino", id="a runtime to check for"),
    pytest.param("lower decoder.onnx --only TensorScater", "TensorScatter", id="an operator"),
    pytest.param("ops rmsnormalization", "RMSNormalization", id="an operator, in lower case"),
    pytest.param("eval --op CumSm --input x=1", "CumSum", id="an operator to run"),
    pytest.param("eval --op CumSum --attr revers=1 --input x=1", "reverse", id="an attribute"),
    pytest.param("eval --op TopK --input X=1 --input k=1 --input L=1", "K", id="a formal input"),
    pytest.param("lower decoder.onnx --dim batc=2", "batch", id="a dimension to lower with"),
    pytest.param("check decoder.onnx --dim Batch=2", "batch", id="a dimension to check with"),
    pytest.param("inspect decoder.onnx --dim sequence=2", "sequence_len", id="a dimension"),
    pytest.param("eval decoder.onnx --input inputids=1", "input_ids", id="a graph input"),
    pytest.param("eval decoder.onnx --random --fetch logit", "logits", id="a value to fetch"),
    pytest.param(
        "eval decoder.onnx --random --node lm_head/MatMul_57", "lm_head/MatMul_node_57", id="a node"
    ),
    pytest.param("eval decoder.onnx --input input_ids='it64:[1]'", "int64", id="an element type"),
    pytest.param("eval decoder.onnx --input input_ids=idz.npy", "ids.npy", id="a file of values"),
    pytest.param(
        "eval decoder.onnx --input input_ids=all.npz:id", "all.npz:ids", id="an array in a file"
    ),
    pytest.param("raise exported.onnx --assume contigous", "contiguous", id="an assumption"),
    pytest.param(
        "raise exported.onnx --assume contiguous:cache_pos", "cache_position", id="about a value"
    ),
    pytest.param("inspect decoder.onx", "decoder.onnx", id="a file with a slip in its ending"),
    pytest.param("lower decoder", "decoder.onnx", id="a file without its ending"),
    pytest.param("infer decodr.onnx", "decoder.onnx", id="a file with a slip in its name"),
    pytest.param("check modls/decoder.onnx", "models/decoder.onnx", id="a directory"),
    pytest.param("check modls", "models", id="a directory by itself"),
]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(MODELS / "native" / "llama_static.onnx", tmp_path / "decoder.onnx")
    exported = MODELS / "torch_static" / "hf" / "llama_static__dynamo_op18.onnx"
    shutil.copy(exported, tmp_path / "exported.onnx")
    (tmp_path / "models").mkdir()
    shutil.copy(tmp_path / "decoder.onnx", tmp_path / "models")
    (tmp_path / "decoder.onnx.data").touch()
    np.save(tmp_path / "ids.npy", np.zeros((2, 3), np.int64))
    np.savez(tmp_path / "all.npz", ids=np.zeros((2, 3), np.int64))
    (tmp_path / "typo.toml").write_text("selct = ['KV1']\n", encoding="utf-8")
    (tmp_path / "word.toml").write_text("fail-on = 'warnings'\n", encoding="utf-8")
    (tmp_path / "kvtool.toml").touch()
    (tmp_path / "known.json").touch()
    monkeypatch.chdir(tmp_path)


@each(("line", "suggested"), CASES)
def test_the_nearest_name_is_suggested(kvtool, line: str, suggested: str) -> None:
    result = kvtool(*shlex.split(line))
    assert result.exit_code in (2, 3)
    # What `check` finds is printed file by file; no file has the size only when all were read.
    is_read = line.startswith("check decoder.onnx --dim")
    assert result.stdout.startswith("decoder.onnx: 1 finding\n") if is_read else not result.stdout
    error, help = result.stderr.splitlines()
    assert error.startswith("kvtool: error: ")
    assert help == f"  help: did you mean `{suggested}`?"


@each(
    "line",
    [
        pytest.param("nonsense", id="a command"),
        pytest.param("lower decoder.onnx --qqq", id="an option"),
        pytest.param("lower decoder.onnx --via qqq", id="a choice"),
        pytest.param("inspect qqq.onnx", id="a file: what all names end with is not near"),
        pytest.param("lower decoder.onnx --target qqq", id="a runtime"),
        pytest.param("lower decoder.onnx --dim qqq=1", id="a dimension"),
        pytest.param("eval decoder.onnx --random --fetch qqq", id="a value"),
        pytest.param("check --config qqq.toml", id="a configuration"),
    ],
)
def test_nothing_is_suggested_where_nothing_is_near(kvtool, line: str) -> None:
    result = kvtool(*shlex.split(line))
    assert result.exit_code in (2, 3)
    assert "did you mean" not in result.stderr
