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

from onnx_kvtool import __address__
from onnx_kvtool.cli.app import COMMANDS
from tests.grids import rest
from tests.lint.models import BAD_MODE, CLEAN, save
from tests.page_examples import blocks

pytestmark = pytest.mark.long


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
        assert re.search(rf"\$\{{\{{ inputs\.{name} \}}\}}|if: inputs\.{name}\b", text), name
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
    action = load(ROOT / "action.yml")
    inputs = set(action["inputs"])
    page = (ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8")
    snippets = [block.content for block in blocks(page) if block.language == "yaml"]
    repository = __address__.removeprefix("https://github.com/")
    assert set(re.findall(r"https://github\.com/[\w-]+/kvtool", page)) == {__address__}
    assert len(snippets) == 7
    used = 0
    for snippet in snippets:
        assert set(re.findall(r"(?<=[\s\[])--[a-z-]+", snippet)) <= flags()
        assert set(re.findall(r"steps\.kvtool\.outputs\.([a-z-]+)", snippet)) <= {
            *action["outputs"]
        }
        for step in steps(yaml.safe_load(snippet)):
            if repository in step.get("uses", ""):
                used += 1
                assert set(step["with"]) <= inputs
            elif step.get("id"):
                used += 1
                assert step["id"] == hook["id"]
    assert used == 6


KVTOOL = f'exec {sys.executable} -m onnx_kvtool "$@"'
RECORDER = 'printf "%s\\0" "$@" > "$RUNNER_TEMP/arguments"; exit 3'


def program(path: Path, command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    path.chmod(0o755)


def run_step(
    directory: Path, name: str, values: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as a runner would; what its expressions say is in `values`."""
    (step,) = (s for s in load(ROOT / "action.yml")["runs"]["steps"] if s.get("name") == name)
    environment = {
        name: re.sub(r"\$\{\{ (\S+) \}\}", lambda m: values[m[1]], text)
        for name, text in step["env"].items()
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=directory,
        env={
            **os.environ,
            **environment,
            "PYTHONPATH": str(ROOT),
            "RUNNER_TEMP": str(directory / "temp"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(directory / "outputs"),
            "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_action(
    directory: Path, kvtool: str = KVTOOL, programs: str = "bin", **inputs: str
) -> subprocess.CompletedProcess[str]:
    """Run the step of the action that checks, with this in the place of the installed kvtool."""
    place = directory / "temp" / "kvtool" / programs
    program(place / "kvtool", kvtool)
    (place / "python").symlink_to(sys.executable)
    defaults = {n: line["default"] for n, line in load(ROOT / "action.yml")["inputs"].items()}
    values = {f"inputs.{name}": value for name, value in (defaults | inputs).items()}
    return run_step(directory, "kvtool check", values)


def outputs(directory: Path) -> dict[str, str]:
    """Return what the steps of the action have put out, with the names that the action gives it."""
    lines = (directory / "outputs").read_text(encoding="utf-8").splitlines()
    written = dict(line.split("=", 1) for line in lines)
    declared = load(ROOT / "action.yml")["outputs"]
    names = {n: line["value"][len("${{ steps.check.outputs.") : -3] for n, line in declared.items()}
    return {name: written.get(source, "") for name, source in names.items()}


PLAIN = ["check", "--format", "github", "--"]
REPORT = ["-o", "a b", "--", "."]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param({}, [*PLAIN, "."], id="nothing: the current directory"),
        pytest.param({"paths": "a b/c.onnx"}, [*PLAIN, "a", "b/c.onnx"], id="spaces"),
        pytest.param({"paths": "a\nb\nc\n"}, [*PLAIN, "a", "b", "c"], id="lines"),
        pytest.param({"paths": "\n\n  a\n"}, [*PLAIN, "a"], id="a leading line end"),
        pytest.param({"paths": "a\r\nb\r\n"}, [*PLAIN, "a", "b"], id="line ends of Windows"),
        pytest.param(
            {"paths": "'my models'\n\"b c\".onnx"},
            [*PLAIN, "my models", "b c.onnx"],
            id="quotes hold a name together",
        ),
        pytest.param(
            {"paths": "a\\b.onnx $HOME `id` #c *.onnx"},
            [*PLAIN, "a\\b.onnx", "$HOME", "`id`", "#c", "*.onnx"],
            id="what a shell would read is text",
        ),
        pytest.param({"paths": "-x.onnx"}, [*PLAIN, "-x.onnx"], id="a path is never a flag"),
        pytest.param(
            {"args": "--select KV0\n--baseline 'a b.json'", "format": "sarif", "output": "a b"},
            [
                "check",
                "--format",
                "sarif",
                "--select",
                "KV0",
                "--baseline",
                "a b.json",
                "-o",
                "a b",
                "--",
                ".",
            ],
            id="flags on two lines, and a report with a space in its name",
        ),
    ],
)
@pytest.mark.parametrize("programs", ["bin", *rest("Scripts")])
def test_the_action_hands_on_every_word(
    tmp_path: Path, programs: str, inputs: dict[str, str], expected: list[str]
) -> None:
    result = run_action(tmp_path, RECORDER, programs, **inputs)
    assert result.returncode == 3, result.stderr
    got = (tmp_path / "temp" / "arguments").read_text(encoding="utf-8").split("\0")[:-1]
    assert got == expected
    assert outputs(tmp_path)["exit-code"] == "3"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        pytest.param({"paths": " \n"}, "input `paths` of the action is empty", id="no path"),
        pytest.param(
            {"paths": "it's.onnx"}, "a quote in the input `paths` of the action", id="half a quote"
        ),
        pytest.param({"args": "--dim 'B=2"}, "a quote in the input `args`", id="in the flags"),
    ],
)
def test_the_action_checks_nothing_for_an_input_that_it_cannot_read(
    tmp_path: Path, inputs: dict[str, str], said: str
) -> None:
    result = run_action(tmp_path, RECORDER, **inputs)
    assert result.returncode == 2 and not (tmp_path / "temp" / "arguments").exists()
    assert result.stdout.startswith("::error title=kvtool check::") and said in result.stdout


FAILING = r"""printf "kvtool: error: \`50%%.onnx\` does not exist\n  help: look\n" >&2; exit 3"""
COLORED = r"""printf "\033[31mkvtool: error:\033[0m \`50%%.onnx\` does not exist\n" >&2; exit 3"""


@pytest.mark.parametrize("kvtool", [FAILING, COLORED], ids=["plain", "colored"])
def test_the_action_annotates_why_kvtool_failed_and_has_no_report_then(
    tmp_path: Path, kvtool: str
) -> None:
    (tmp_path / "kvtool.sarif").write_text("of an earlier run", encoding="utf-8")
    result = run_action(tmp_path, kvtool, format="sarif", output="kvtool.sarif")
    assert result.returncode == 3, result.stderr
    assert result.stdout == "::error title=kvtool check::`50%25.onnx` does not exist\n"
    assert "`50%.onnx` does not exist\n" in result.stderr
    assert (tmp_path / "outputs").read_text(encoding="utf-8") == "exit-code=3\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["github", "sarif"])
def test_a_path_that_is_not_there_is_an_error_of_the_job(tmp_path: Path, form: str) -> None:
    result = run_action(tmp_path, paths="gone.onnx", format=form, output="report")
    assert result.returncode == 3, result.stderr
    assert result.stdout == "::error title=kvtool check::`gone.onnx` does not exist\n"
    assert (tmp_path / "outputs").read_text(encoding="utf-8") == "exit-code=3\n"


@pytest.mark.exhaustive
def test_the_action_annotates(tmp_path: Path) -> None:
    save(CLEAN, tmp_path / "clean" / "a.onnx")
    save(BAD_MODE, tmp_path / "models" / "bad.onnx")
    result = run_action(tmp_path, paths="clean\nmodels\n", args="--select KV003 --isolated")
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("::error file=models/bad.onnx,line=1,title=KV003 bad-mode::")
    assert "KV003 bad-mode" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert outputs(tmp_path) == {
        "files": "2",
        "errors": "1",
        "warnings": "0",
        "remarks": "0",
        "exit-code": "1",
        "report": "",
        "sarif": "",
    }


@pytest.mark.exhaustive
def test_the_action_writes_sarif(tmp_path: Path) -> None:
    save(CLEAN, tmp_path / "a.onnx")
    result = run_action(tmp_path, format="sarif", output="kvtool.sarif", args="--select KV0")
    assert result.returncode == 0, result.stderr
    assert '"version": "2.1.0"' in (tmp_path / "kvtool.sarif").read_text(encoding="utf-8")
    said = outputs(tmp_path)
    assert said["report"] == said["sarif"] == "kvtool.sarif"
    assert (said["files"], said["errors"], said["exit-code"]) == ("1", "0", "0")


def test_what_lies_in_the_workspace_is_not_imported(tmp_path: Path) -> None:
    save(CLEAN, tmp_path / "a.onnx")
    for name in ("shlex", "subprocess"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n", encoding="utf-8")
    assert run_action(tmp_path, RECORDER).returncode == 3


def test_the_cache_of_the_action_is_known_by_what_is_installed(tmp_path: Path) -> None:
    result = run_step(
        tmp_path, "Name the cache", {"steps.python.outputs.python-path": sys.executable}
    )
    assert result.returncode == 0, result.stderr
    written = (tmp_path / "outputs").read_text(encoding="utf-8")
    version = re.escape(".".join(map(str, sys.version_info[:3])))
    assert re.fullmatch(rf"key=kvtool-\w+-\w+-{version}-[0-9a-f]{{16}}\n", written)
    steps = load(ROOT / "action.yml")["runs"]["steps"]
    (cache,) = (step for step in steps if step.get("uses", "").startswith("actions/cache@"))
    (install,) = (step for step in steps if step.get("name") == "Install kvtool")
    assert cache["with"]["path"] == "${{ runner.temp }}/kvtool-pip"
    assert '--cache-dir "$RUNNER_TEMP/kvtool-pip"' in install["run"]


@pytest.mark.parametrize("programs", ["bin", "Scripts"])
def test_the_action_installs_into_an_environment_of_its_own(tmp_path: Path, programs: str) -> None:
    """Python and pip are stand-ins that write down how they are called."""
    place = tmp_path / "temp" / "kvtool" / programs
    log = tmp_path / "log"
    pip = f'printf "%s\\n" "$*" >> {log}'
    maker = f"mkdir -p {place} && {pip} && printf '#!/bin/sh\\n%s\\n' '{pip}' > {place}/python"
    program(tmp_path / "python", f"{maker} && chmod +x {place}/python")
    result = run_step(
        tmp_path, "Install kvtool", {"steps.python.outputs.python-path": f"{tmp_path}/python"}
    )
    assert result.returncode == 0, result.stderr
    temp = tmp_path / "temp"
    assert log.read_text(encoding="utf-8").splitlines() == [
        f"-m venv {temp}/kvtool",
        f"-m pip install --quiet --cache-dir {temp}/kvtool-pip {ROOT}",
    ]


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
