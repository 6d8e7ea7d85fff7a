"""What other tools read of kvtool: the hook of pre-commit, the action, snippets of the guide."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # comes with pre-commit

from onnx_kvtool.cli.app import COMMANDS
from tests.lint.models import BAD_MODE, CLEAN, save
from tests.page_examples import blocks

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def flags() -> set[str]:
    return {
        flag
        for param in COMMANDS["check"].params
        if isinstance(param, click.Option)
        for flag in param.opts
    }


def test_the_hook_takes_models_alone() -> None:
    (hook,) = load(ROOT / ".pre-commit-hooks.yaml")
    assert hook["id"] == "kvtool-check" and hook["entry"] == "kvtool check"
    assert hook["language"] == "python" and hook["require_serial"] is False
    assert re.search(hook["files"], "models/a.onnx")
    assert not re.search(hook["files"], "a.onnx.data")


def test_the_action_reads_every_input() -> None:
    action = load(ROOT / "action.yml")
    assert action["runs"]["using"] == "composite"
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for name in action["inputs"]:
        assert f"${{{{ inputs.{name} }}}}" in text
    for step in action["runs"]["steps"]:
        if "run" in step:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"], "an input inside a script could run commands"


def steps(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what stands in lists of mappings anywhere in a configuration."""
    if isinstance(value, dict):
        for item in value.values():
            yield from steps(item)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item
            yield from steps(item)


def test_every_snippet_of_the_guide_names_what_there_is() -> None:
    (hook,) = load(ROOT / ".pre-commit-hooks.yaml")
    inputs = set(load(ROOT / "action.yml")["inputs"])
    page = (ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8")
    snippets = [block.content for block in blocks(page) if block.language == "yaml"]
    assert len(snippets) == 5
    used = 0
    for snippet in snippets:
        assert set(re.findall(r"(?<=[\s\[])--[a-z-]+", snippet)) <= flags()
        for step in steps(yaml.safe_load(snippet)):
            if "OWNER/kvtool" in step.get("uses", ""):
                used += 1
                assert set(step["with"]) <= inputs
            if step.get("id"):
                used += 1
                assert step["id"] == hook["id"]
    assert used == 4


def run_action(directory: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of the action as a runner would, with this kvtool installed."""
    action = load(ROOT / "action.yml")
    values = {name: line["default"] for name, line in action["inputs"].items()} | inputs
    step = action["runs"]["steps"][-1]
    environment = {
        name: re.sub(r"\$\{\{ inputs\.(\S+) \}\}", lambda m: values[m[1]], text)
        for name, text in step["env"].items()
    }
    program = directory / "temp" / "kvtool" / "bin" / "kvtool"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m onnx_kvtool "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        cwd=directory,
        env={
            **os.environ,
            **environment,
            "PYTHONPATH": str(ROOT),
            "RUNNER_TEMP": str(directory / "temp"),
            "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_action_annotates(tmp_path: Path) -> None:
    save(BAD_MODE, tmp_path / "models" / "bad.onnx")
    result = run_action(tmp_path, paths="models", args="--select KV003 --isolated")
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("::error file=models/bad.onnx,line=1,title=KV003 bad-mode::")
    assert "KV003 bad-mode" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_the_action_writes_sarif(tmp_path: Path) -> None:
    save(CLEAN, tmp_path / "a.onnx")
    result = run_action(tmp_path, format="sarif", output="kvtool.sarif", args="--select KV0")
    assert result.returncode == 0, result.stderr
    assert '"version": "2.1.0"' in (tmp_path / "kvtool.sarif").read_text(encoding="utf-8")


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", *identity, *arguments]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=60)


@pytest.mark.slow
def test_the_hook_runs_in_pre_commit(tmp_path: Path) -> None:
    """pre-commit installs kvtool from a copy of the checkout, and checks staged models alone."""
    tool, project = tmp_path / "tool", tmp_path / "project"
    ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, tool, ignore=ignore)
    git(tmp_path, "init", "-q", str(tool))
    git(tool, "add", "-A")
    git(tool, "commit", "-qm", "kvtool")
    project.mkdir()
    git(project, "init", "-q")
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {tool}\n  rev: HEAD\n  hooks:\n  - id: kvtool-check\n"
        "    args: [--select, KV003]\n",
        encoding="utf-8",
    )
    save(CLEAN, project / "clean.onnx")
    save(BAD_MODE, project / "untracked.onnx")
    git(project, "add", "clean.onnx", ".pre-commit-config.yaml")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run"],
            cwd=project,
            env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    passed = run()
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert re.search(r"kvtool check\.+Passed", passed.stdout)
    git(project, "add", "untracked.onnx")
    failed = run()
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "error KV003 bad-mode" in failed.stdout and "untracked.onnx" in failed.stdout
