"""A review with git itself: a repository of 40 models, and a pull request that changes one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import pytest
import yaml
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "fixtures" / "models"
BIAS = MODELS / "native" / "mobius_block_bias_int64_2d.onnx"
COUNT = 40

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git"),
]


class Session:
    """A shell in a repository, with kvtool on its path."""

    def __init__(self, directory: Path) -> None:
        self.repository = directory / "repository"
        self.repository.mkdir()
        programs = directory / "temp" / "kvtool" / "bin"
        programs.mkdir(parents=True)
        kvtool = programs / "kvtool"
        kvtool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnx_kvtool "$@"\n')
        kvtool.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PAGER": "cat",
            "RUNNER_TEMP": str(directory / "temp"),
            "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
        }
        for name in ("author", "committer"):
            self.environment[f"GIT_{name.upper()}_NAME"] = "a"
            self.environment[f"GIT_{name.upper()}_EMAIL"] = "a@b"

    def run(self, command: str, code: int = 0, **environment: str) -> str:
        result = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command],
            cwd=self.repository,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == code, (command, result.stdout, result.stderr)
        return result.stdout

    def lines(self, command: str) -> list[str]:
        """Run git's diff and return what it marks, without the names of the files."""
        marked = (line for line in self.run(command).splitlines() if line[:1] in "+-" and line)
        return [line for line in marked if not line.startswith(("+++", "---"))]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    found = Session(tmp_path)
    found.run("git init --quiet --initial-branch main")
    found.run("echo '*.onnx diff=onnx' > .gitattributes")
    found.run('git config diff.onnx.textconv "kvtool print --textconv"')
    return found


def _forty_models(repository: Path) -> None:
    small = sorted(p for p in MODELS.rglob("*.onnx") if p.stat().st_size < 60_000)
    for number in range(COUNT):
        source = small[number % len(small)]
        target = repository / "models" / f"group{number // len(small)}" / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _change(path: Path) -> None:
    """Put the cache's axis on the batch, and another number into a mask."""
    model = onnx.load(path)
    (node,) = (n for n in model.graph.node if n.op_type == "TensorScatter")
    node.attribute[0].i = 0
    (low,) = (t for t in model.graph.initializer if t.name.startswith("const_-3"))
    low.CopyFrom(numpy_helper.from_array(np.array(-1e9, np.float32), low.name))
    onnx.save(model, path)


def test_a_pull_request_that_changes_one_of_forty_models(session: Session, tmp_path: Path) -> None:
    run, repository = session.run, session.repository
    _forty_models(repository)
    assert len(list(repository.rglob("*.onnx"))) == COUNT
    run("kvtool check models --write-baseline baseline.json --exit-zero")
    run("echo 'baseline = \"baseline.json\"' > kvtool.toml")
    run("git add . && git commit --quiet --message models")
    changed = f"models/group0/{BIAS.name}"
    run("git checkout --quiet -b change")
    _change(repository / changed)
    run("git commit --quiet --all --message 'Change a model'")

    # git's own diff
    marked = session.lines("git diff main")
    assert [line[0] for line in marked] == ["-", "+", "-", "+"]
    assert "{-3.4028235e+38}" in marked[0] and "{-1e+09}" in marked[1].replace("0000000.0", "e+09")
    assert "TensorScatter <axis: int = 1>" in marked[2] and "<axis: int = 0>" in marked[3]
    assert session.lines("git show HEAD") == marked

    # kvtool diff
    run(f"git show main:{changed} > {tmp_path}/old.onnx")
    answer = json.loads(run(f"kvtool diff {tmp_path}/old.onnx {changed} --format json", code=1))
    (node,) = answer["nodes"]["changed"]
    assert (node["op"], node["what"], node["old"], node["new"]) == (
        "TensorScatter",
        "axis",
        "1",
        "0",
    )
    (weight,) = answer["weights"]["changed"]
    assert weight["name"].startswith("const_-3")
    for key in ("opsets", "interface", "metadata", "renamed", "values"):
        assert answer[key] == []

    # the same, called by git
    run('git config diff.onnx.command "kvtool diff"')
    shown = run("git diff main")
    assert shown.startswith(f"different: {changed}")
    assert "TensorScatter" in shown and shown.count("different:") == 1
    assert session.lines("git diff --no-ext-diff main") == marked

    # the summary of the job, on a runner without that configuration
    run("git config --unset diff.onnx.command")
    (step,) = (
        step
        for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
        if step.get("name") == "kvtool diff"
    )
    run(step["run"], KVTOOL_BASE="main")
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith(f"### `{changed}`: different")
    assert "| `TensorScatter` |" in summary and summary.count("###") == 1

    # the check, of which the baseline knows everything but the mistake
    check = "kvtool check models --cache-dir .kvtool-cache --format json"
    findings = json.loads(run(check, code=1))
    assert json.loads(run(check, code=1))["files"] == findings["files"]
    new = [f for file in findings["files"] for f in file["findings"] if f["severity"] == "error"]
    assert [f["code"] for f in new] == ["KV001"]


def test_models_that_came_went_and_moved(session: Session, tmp_path: Path) -> None:
    run, repository = session.run, session.repository
    hand = MODELS / "torch_static" / "hand"
    for name in ("stays", "moves"):
        shutil.copyfile(BIAS, repository / f"{name}.onnx")
    shutil.copyfile(hand / "index_copy_bhsd__ts_op17.onnx", repository / "goes.onnx")
    run("git add . && git commit --quiet --message models")
    run("git mv moves.onnx moved.onnx && git rm --quiet goes.onnx")
    _change(repository / "moved.onnx")
    shutil.copyfile(hand / "onehot_mul__dynamo_op18.onnx", repository / "comes.onnx")
    run("git add . && git commit --quiet --message changes")
    run('git config diff.onnx.command "kvtool diff"')
    shown = run("git diff --find-renames=50% HEAD~")
    words = ("added:", "removed:", "different:")
    assert [line for line in shown.splitlines() if line.startswith(words)] == [
        "added: comes.onnx",
        "removed: goes.onnx",
        "different: moves.onnx and moved.onnx",
    ]
    assert "changed: 1 node" in shown


def test_weights_in_a_file_that_git_does_not_hand_over(session: Session) -> None:
    run, path = session.run, session.repository / "model.onnx"
    model = onnx.load(MODELS / "native" / "llama_static.onnx")
    onnx.external_data_helper.convert_model_to_external_data(
        model, location="model.bin", size_threshold=100
    )
    onnx.save(model, path)
    run("git add . && git commit --quiet --message model")
    model = onnx.load(path, load_external_data=False)
    model.graph.node[3].name = "renamed"
    onnx.save(model, path)
    run('git config diff.onnx.textconv "kvtool print --weights embedded"')
    assert len(session.lines("git diff")) == 2
    run('git config diff.onnx.command "kvtool diff"')
    assert "renamed: 1 node" in run("git diff")


def test_a_version_that_is_no_model_does_not_stop_git(session: Session) -> None:
    run, path = session.run, session.repository / "model.onnx"
    shutil.copyfile(BIAS, path)
    shutil.copyfile(BIAS, path.with_name("next.onnx"))
    run("git add . && git commit --quiet --message sound")
    path.write_bytes(b"\x08\x0bnot a model")
    _change(path.with_name("next.onnx"))
    marked = [line for line in session.lines("git diff") if line.startswith("+")]
    assert marked[0].startswith("+# `model.onnx` is no ONNX model")
    assert marked[1].startswith("+# 13 bytes, sha256 ") and "<axis: int = 0>" in marked[-1]
    run("git commit --quiet --all --message broken")
    shutil.copyfile(BIAS, path)
    assert [line for line in session.lines("git diff") if line.startswith("-#")] == [
        line.replace("+", "-", 1) for line in marked[:2]
    ]

    run('git config diff.onnx.command "kvtool diff"')
    was = run("git diff")
    assert was.startswith("unreadable: model.onnx\nnote: the old version of `model.onnx` is ")
    is_now = run("git diff HEAD~ HEAD")
    assert is_now.startswith("unreadable: model.onnx\nnote: `model.onnx` is no ONNX model")
    assert "different: next.onnx and next.onnx" in is_now
