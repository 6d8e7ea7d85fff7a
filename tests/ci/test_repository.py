"""What the repository says to GitHub, to the package index and to those who cite it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # comes with pre-commit

from onnx_kvtool import __version__
from tests.grids import each

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [
    path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"
]

SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-actions": [ROOT / "action.yml"],
    "github-issue-forms": FORMS,
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{path.stem}.{name}", job)
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_file_is_what_its_reader_expects(schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="needs the group `test`")
    assert SCHEMAS[schema]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    result = subprocess.run(
        [*command, "--no-cache", *SCHEMAS[schema]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_schemas_refuse_what_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="needs the group `test`")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("on: push\njobs: {a: {runs-on: x, stepz: []}}\n", encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "github-workflows"]
    result = subprocess.run([*command, wrong], capture_output=True, timeout=60, check=False)
    assert result.returncode == 1


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="needs actionlint on the path")
def test_actionlint_finds_nothing() -> None:
    result = subprocess.run(
        ["actionlint", *WORKFLOWS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_ci_runs_on_every_system_with_every_python_of_the_metadata() -> None:
    tested = load(GITHUB / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert tested["python"] == re.findall(r'"Programming Language :: Python :: (3\.\d+)"', metadata)
    least = re.search(r'requires-python = ">=(.*?)"', metadata)
    assert least is not None and tested["python"][0] == least[1]
    assert {name.partition("-")[0] for name in tested["system"]} == {"ubuntu", "macos", "windows"}
    lowest = load(GITHUB / "workflows" / "ci.yml")["jobs"]["lowest"]["strategy"]["matrix"]
    assert lowest["python"] == [tested["python"][0], tested["python"][-1]]
    wheel = load(GITHUB / "workflows" / "ci.yml")["jobs"]["wheel"]["strategy"]["matrix"]
    assert wheel == {**tested, "resolution": ["lowest-direct", "highest"]}


@each("job", dict(jobs()))
def test_a_job_ends_and_may_do_no_more_than_it_needs(job: dict[str, Any]) -> None:
    assert job["timeout-minutes"] <= 360
    for step in job["steps"]:
        uses = step.get("uses", "./")
        assert uses == "./" or re.search(r"@[0-9a-f]{40}$|^docker://.*@sha256:[0-9a-f]{64}$", uses)
        if uses.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert "${{" not in step.get("run", ""), "what stands in an expression could run commands"


def test_only_what_publishes_may_write() -> None:
    for path in WORKFLOWS:
        assert load(path)["permissions"] == {"contents": "read"}
    assert {name: job["permissions"] for name, job in jobs() if "permissions" in job} == {
        "docs.deploy": {"pages": "write", "id-token": "write"},
        "release.announce": {"contents": "write"},
        "release.publish": {"id-token": "write"},
    }


def test_nothing_is_published_that_was_not_tried() -> None:
    release = load(GITHUB / "workflows" / "release.yml")["jobs"]
    assert [release[name].get("needs") for name in ("build", "try", "publish", "announce")] == [
        None,
        "build",
        "try",
        "publish",
    ]
    assert release["publish"]["environment"] == "pypi"
    assert "password" not in (GITHUB / "workflows" / "release.yml").read_text("utf-8").replace(
        "there is no password", ""
    )


def test_what_is_run_is_there() -> None:
    scripts = {
        word
        for _, job in jobs()
        for step in job["steps"]
        for word in re.findall(r"(?<![\w/])(?:\.ci|tests)/[\w/.]+", step.get("run", ""))
    }
    named = {".ci/lowest", ".ci/run", ".ci/release_notes.py", ".ci/wheel", "tests/test_wheel.py"}
    assert named <= scripts
    assert [name for name in scripts if not (ROOT / name).exists()] == []


def test_nothing_is_tied_to_a_machine() -> None:
    files = [*WORKFLOWS, *GITHUB.rglob("*.md"), *FORMS, ROOT / "CITATION.cff", ROOT / "SECURITY.md"]
    for path in files:
        assert not re.search(r"/(home|root|work|Users)/|self-hosted", path.read_text("utf-8")), path


def release_notes() -> Any:
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / ".ci/release_notes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HEAD = "# Changelog\n\nText.\n\n"
OLD = "\n## [0.1.0] - 2026-01-01\n\n- old\n"


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    changelog = f"{HEAD}## [0.2.0] - 2026-11-22\n\n### Added\n\n- new\n{OLD}"
    assert release_notes().notes("v0.2.0", "0.2.0", changelog) == "### Added\n\n- new\n"


@each(
    ("tag", "heading", "message"),
    [
        pytest.param("v0.3.0", "[0.2.0] - 2026-11-22", "expected `v0.2.0`", id="another tag"),
        pytest.param("0.2.0", "[0.2.0] - 2026-11-22", "expected `v0.2.0`", id="no v"),
        pytest.param("v0.2.0", "[0.2.0] - unreleased", "is `[0.2.0] - unreleased`", id="no date"),
        pytest.param("v0.2.0", "[0.3.0] - 2026-11-22", "is `[0.3.0] - 2026", id="another section"),
    ],
)
def test_a_release_whose_parts_disagree_is_none(tag: str, heading: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        release_notes().notes(tag, "0.2.0", f"{HEAD}## {heading}\n\n- new\n{OLD}")


def test_the_notes_of_the_next_release_can_be_read() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = changelog.replace(" - unreleased", " - 2026-11-22", 1)
    assert release_notes().notes(f"v{__version__}", __version__, dated).startswith("### ")
