"""What is installed is whole, and runs where no checkout is."""

from __future__ import annotations

import email
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import pytest

from onnx_kvtool import __address__, __version__
from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.lint.rule import RULES
from tests.page_examples import stage

pytestmark = pytest.mark.slow

NAME = "onnx_kvtool"
RUNS = [
    "inspect decoder.onnx --format json",
    "infer decoder.onnx --strict",
    "check decoder.onnx --isolated --exit-zero --format json -o found.json",
    "merge found.json",
    "print decoder.onnx -o decoder.txt",
    "diff decoder.onnx decoder.onnx",
    "lower decoder.onnx",
    "verify decoder.onnx decoder.opset18.onnx --cases 1",
    "raise exported.onnx --assume contiguous --assume in-range --no-verify",
    "eval decoder.onnx --random",
    "ops TensorScatter",
    "bench decoder.onnx --prompt 3 --tokens 2 --rounds 1",
    "rule KV001",
    "targets",
    "help lower",
    "--debug --version",
]


def build(kind: str, source: Path, target: Path) -> Path:
    """Build a distribution of a tree, and return its file."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(__file__).resolve().parent.parent
    return build("sdist", root, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, sdist: Path) -> Path:
    """The wheel that whoever has only the source distribution builds."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    return build("wheel", unpacked / f"{NAME}-{__version__}", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{NAME}-{__version__}.dist-info/METADATA").decode()
    return email.message_from_string(text)


@pytest.fixture(scope="module")
def installed(
    tmp_path_factory: pytest.TempPathFactory, wheel: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the installed command in a directory with models, far from the checkout."""
    place, directory = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run(
        [*pip, "--target", place, wheel],
        check=True,
        capture_output=True,
        timeout=120,
    )
    stage(directory)
    (directory / "fixtures").unlink()
    shutil.rmtree(directory / "bin")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(place), "COLUMNS": "80", "KVTOOL": str(place)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_the_wheel_holds_the_package_and_nothing_else(root: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        packed = {name for name in names if ".dist-info/" not in name}
        entry_points = archive.read(f"{NAME}-{__version__}.dist-info/entry_points.txt")
    assert entry_points.split() == b"[console_scripts] kvtool = onnx_kvtool.cli:main".split()
    assert f"{NAME}-{__version__}.dist-info/licenses/LICENSE" in names
    sources = {
        path.relative_to(root).as_posix()
        for path in (root / NAME).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert packed == sources
    assert {name for name in packed if not name.endswith(".py")} == {
        f"{NAME}/py.typed",
        f"{NAME}/ops/contrib_schemas.json",
        f"{NAME}/targets/runtimes.toml",
        *(f"{NAME}/lint/rules/pages/{code}.md" for code in RULES),
    }


def test_the_source_distribution_can_be_tested_and_documented(root: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    missing = {name for name in listed if name and (root / name).exists()} - packed
    assert missing == set()
    assert not any(re.search(r"\.pyc$|\.egg-info|_cache/|^\.git/", name) for name in packed)


def test_the_metadata_are_what_the_package_index_shows(metadata: Message, root: Path) -> None:
    assert metadata["Name"] == "onnx-kvtool"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert text.partition("\n")[0] == "# kvtool"
    assert all(f"{__address__}/" in line for line in metadata.get_all("Project-URL", [])[:1])
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links and [link for link in links if not link.startswith(("https://", "#"))] == []
    for link in links:
        path = link.partition(f"/v{__version__}/")[2].partition("#")[0]
        assert not path or (root / path).exists(), link
    page = pytest.importorskip("readme_renderer.markdown").render(text)
    assert page is not None and page.count("<table") == text.count("\n| --- |")
    classifiers = metadata.get_all("Classifier", [])
    assert not any(line.startswith("License ::") for line in classifiers)  # beside an expression
    assert "Typing :: Typed" in classifiers
    least = metadata["Requires-Python"].removeprefix(">=")
    minors = [int(m[1]) for line in classifiers if (m := re.search(r":: 3\.(\d+)$", line))]
    assert minors == list(range(int(least.partition(".")[2]), max(minors) + 1))


def test_the_package_index_takes_both_distributions(wheel: Path, sdist: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_package_is_imported_from_where_it_was_installed(installed) -> None:
    code = (
        "import os, onnx_kvtool, importlib.metadata as m;"
        "assert onnx_kvtool.__file__.startswith(os.environ['KVTOOL']), onnx_kvtool.__file__;"
        "assert m.version('onnx-kvtool') == onnx_kvtool.__version__"
    )
    result = installed(sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr


@pytest.mark.needs_onnxruntime("1.29")
def test_every_command_runs_without_a_checkout(installed) -> None:
    for line in RUNS:
        result = installed(sys.executable, "-m", NAME, *shlex.split(line))
        assert result.returncode == 0, f"{line}\n{result.stderr}"
    assert {line.split()[0] for line in RUNS} >= set(COMMANDS)
