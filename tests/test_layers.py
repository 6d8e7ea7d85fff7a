"""The layers of the package hold, and the check that says so can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import circles, imports, rooms


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    command = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, '.'); {command}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_module_imports_what_its_layer_may_not(root: Path) -> None:
    result = lint_imports(root)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        pytest.param(
            "core/errors.py", "import onnx_kvtool.cli", "cli ->", id="core may not import cli"
        ),
        pytest.param(
            "report/json.py",
            "import onnx_kvtool.commands",
            "cli ->",
            id="report may not import its sibling commands",
        ),
        pytest.param(
            "rewrite/report.py",
            "import onnx_kvtool.runtime",
            "only rewrite.verify runs models",
            id="rewrite may not run models outside of verify",
        ),
        pytest.param(
            "core/errors.py",
            "import onnxruntime",
            "onnxruntime is imported in runtime.onnxruntime alone",
            id="core may not import onnxruntime",
        ),
        pytest.param(
            "core/errors.py",
            "def late() -> None:\n    import rich.console",
            "rich is imported in report.text alone",
            id="core may not import rich, not even late",
        ),
        pytest.param(
            "report/json.py",
            "import click",
            "click is imported in cli alone",
            id="report may not import click",
        ),
        pytest.param(
            "stray/__init__.py",
            "",
            "cli ->",
            id="a package without a place in the layers is refused",
        ),
    ],
)
def test_a_forbidden_import_is_found(
    root: Path, tmp_path: Path, module: str, line: str, contract: str
) -> None:
    shutil.copy(root / "pyproject.toml", tmp_path)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "onnx_kvtool", tmp_path / "onnx_kvtool", ignore=ignore)
    path = tmp_path / "onnx_kvtool" / module
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(f"\n{line}\n")

    result = lint_imports(tmp_path)

    assert result.returncode == 1, result.stdout + result.stderr
    broken = [text for text in result.stdout.splitlines() if " BROKEN" in text]
    assert [text for text in broken if contract in text], result.stdout


def test_no_imports_go_round_in_a_circle(root: Path) -> None:
    arrows = imports(root)
    assert (circles(arrows), circles(rooms(arrows))) == ([], [])


@pytest.mark.parametrize(
    ("arrows", "expected"),
    [
        pytest.param({"a": {"b"}, "b": {"c"}, "c": set()}, 0, id="none"),
        pytest.param({"a": {"b"}, "b": {"a"}}, 1, id="of two"),
        pytest.param({"a": {"b"}, "b": {"c"}, "c": {"a"}}, 1, id="of three"),
        pytest.param({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}, 2, id="two circles"),
    ],
)
def test_a_circle_of_imports_is_found(arrows: dict[str, set[str]], expected: int) -> None:
    assert len(circles(arrows)) == expected
