"""The layers of the package hold, and the check that says so can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grids import each
from tests.house import circles, imports, rooms

ROOT = Path(__file__).resolve().parent.parent


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


@pytest.mark.long
def test_no_module_imports_what_its_layer_may_not(root: Path) -> None:
    result = lint_imports(root)
    assert result.returncode == 0, result.stdout + result.stderr


FORBIDDEN = {
    "core may not import cli": ("core/errors.py", "import onnx_kvtool.cli", "cli ->"),
    "report may not import its sibling commands": (
        "report/json.py",
        "import onnx_kvtool.commands",
        "cli ->",
    ),
    "rewrite may not run models outside of verify": (
        "rewrite/report.py",
        "import onnx_kvtool.runtime",
        "only rewrite.verify runs models",
    ),
    "core may not import onnxruntime": (
        "core/errors.py",
        "import onnxruntime",
        "onnxruntime is imported in runtime and decoding.bound alone",
    ),
    "core may not import rich, not even late": (
        "core/errors.py",
        "def late() -> None:\n    import rich.console",
        "rich is imported in report.text alone",
    ),
    "report may not import click": (
        "report/json.py",
        "import click",
        "click is imported in cli alone",
    ),
}
"""What is planted: the module, the line, and the contract that it breaks."""


def planted(root: Path, directory: Path, lines: dict[str, str]) -> str:
    """Return what import-linter says of a copy with lines at the end of some modules."""
    shutil.copy(root / "pyproject.toml", directory)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "onnx_kvtool", directory / "onnx_kvtool", ignore=ignore)
    for module, line in lines.items():
        path = directory / "onnx_kvtool" / module
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f"\n{line}\n")
    result = lint_imports(directory)
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout


def broken(said: str) -> str:
    return "\n".join(text for text in said.splitlines() if " BROKEN" in text)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is said of all forbidden imports at once: each run reads every module."""
    lines: dict[str, str] = {}
    for module, line, _ in FORBIDDEN.values():
        lines[module] = lines.get(module, "") + f"\n{line}\n"
    return planted(ROOT, tmp_path_factory.mktemp("layers"), lines)


@pytest.mark.long
@pytest.mark.parametrize(("module", "line", "contract"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_forbidden_import_is_found(said: str, module: str, line: str, contract: str) -> None:
    assert contract in broken(said), said
    importer = "onnx_kvtool." + module.removesuffix(".py").replace("/", ".")
    imported = line.rpartition("import ")[2].partition(".console")[0]
    assert f"{importer} -> {imported} " in said, said


@pytest.mark.exhaustive
def test_a_package_without_a_place_in_the_layers_is_refused(root: Path, tmp_path: Path) -> None:
    assert "cli ->" in broken(planted(root, tmp_path, {"stray/__init__.py": ""}))


@pytest.mark.exhaustive
def test_no_imports_go_round_in_a_circle(root: Path) -> None:
    arrows = imports(root)
    assert (circles(arrows), circles(rooms(arrows))) == ([], [])


@each(
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
