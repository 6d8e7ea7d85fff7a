"""The first pages can be followed word by word: a copy of the checkout, a shell, nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page_examples import ROOT, Example, examples, matches

LEFT_OUT = {
    ("README.md", "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'"),  # the tests
    ("README.md", "eval "),  # is for bash; tests/test_page_examples.py runs it there
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout without what working in it leaves behind."""
    copy = tmp_path_factory.mktemp("copy") / "kvtool"
    left_behind = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "site", "dist"
    )
    shutil.copytree(ROOT, copy, ignore=left_behind)
    return copy


def followed(page: str) -> Iterator[Example]:
    """Yield the examples of a page that a reader can follow."""
    for example in examples((ROOT / page).read_text(encoding="utf-8")):
        if not any(page == of and example.code.startswith(start) for of, start in LEFT_OUT):
            yield example


def shell(command: str, directory: Path) -> tuple[int, str]:
    """Run a command as a reader would who has just activated the environment, if there is one."""
    activate = "if [ -f .venv/bin/activate ]; then . .venv/bin/activate; fi\n"
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "NO_COLOR", "FORCE_COLOR")
    }
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    result = subprocess.run(
        ["sh", "-c", activate + command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    return result.returncode, result.stdout


@pytest.mark.slow
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_page_does_what_it_shows(page: str, checkout: Path) -> None:
    count = 0
    for example in followed(page):
        code = example.code
        if example.language == "python":
            (checkout / "example.py").write_text(code, encoding="utf-8")
            code = "python example.py"
        status, printed = shell(code, checkout)
        assert status == 0, f"{example.code}\n{printed}"
        if example.shown is not None:
            whole = example.language == "session"
            assert matches(printed, example.shown, whole=whole), f"{example.code}\n{printed}"
        count += 1
    assert count >= 7
