"""Type checkers understand the library: on a program of a user, and on the examples of pages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.environments import environment
from tests.page_examples import ROOT, blocks
from tests.pages.table import documents
from tests.user_script import main

SCRIPT = ROOT / "tests" / "user_script.py"
UNTYPED = ("onnxruntime", "openvino", "torch", "transformers")
"""Packages without types, or that are not there: examples that import them are not checked."""
PYRIGHT = "pyright[nodejs]==1.1.414"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the script and each Python block of the pages, as files."""
    shutil.copy(SCRIPT, tmp_path)
    for page, text in documents().items():
        for number, block in enumerate(blocks(text)):
            untyped = any(f"import {name}" in block.content for name in UNTYPED)
            untyped |= any(f"from {name} " in block.content for name in UNTYPED)
            if block.language == "python" and not untyped:
                name = f"{page.removesuffix('.md')}_{number}.py".replace("/", "_").replace("-", "_")
                (tmp_path / name).write_text(block.content, encoding="utf-8")
    assert len(list(tmp_path.iterdir())) > 30
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.needs_onnxruntime("1.29")
def test_the_program_runs() -> None:
    assert main(str(ROOT / "fixtures" / "models" / "native" / "llama_static.onnx")) == 0


def checked(*command: str | Path, programs: Path) -> None:
    """Run a type checker over the programs, as somebody does who has installed kvtool."""
    result = subprocess.run(
        command, cwd=programs, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.exhaustive
def test_mypy_understands_it(programs: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=mypy"]
    checked(*command, *sorted(path.name for path in programs.iterdir()), programs=programs)


@pytest.mark.compat
def test_pyright_understands_it(programs: Path) -> None:
    python = environment(PYRIGHT.replace("==", "-"), (PYRIGHT,))
    settings = programs / "pyrightconfig.json"
    settings.write_text('{"reportUnnecessaryTypeIgnoreComment": true}', encoding="utf-8")
    checked(python, "-m", "pyright", "--pythonpath", sys.executable, ".", programs=programs)
