"""A newcomer's hour: the wheel in an empty environment, a model, and a page followed word by word.

The first way deploys a decoder whose caches grow on an old runtime, which is there with its own
Python and no kvtool. The second asks from Python what a cache costs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_kvtool import __version__
from tests.compat.environments import installed
from tests.page_examples import ROOT, Example, examples, matches
from tests.test_first_pages import shell
from tests.test_page_examples import is_run

pytestmark = pytest.mark.slow

OLD = "1.17.3"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an environment in which the wheel was installed, and the fixtures."""
    home = tmp_path_factory.mktemp("newcomer")
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home / "dist"]
    subprocess.run(wheel, cwd=ROOT, check=True, capture_output=True, timeout=120)
    shutil.copytree(ROOT / "fixtures", home / "fixtures")
    status, printed = shell("python3 -m venv .venv && .venv/bin/pip install -q dist/*.whl", home)
    assert status == 0, printed
    return home


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def follow(example: Example, home: Path) -> str:
    """Run an example as it stands, hold what it prints against the page, and return that."""
    code = example.code
    if example.language == "python":
        (home / "example.py").write_text(code, encoding="utf-8")
        code = "python example.py"
    status, printed = shell(code, home)
    assert status == 0, f"{example.code}\n{printed}"
    if example.shown is not None:
        whole = example.language == "session"
        assert matches(printed, example.shown, whole=whole), f"{example.code}\n{printed}"
    return printed


def test_the_wheel_says_its_version_in_an_empty_environment(home: Path) -> None:
    assert shell("kvtool --version", home) == (0, f"kvtool {__version__}\n")
    status, printed = shell("python -c 'import onnx_kvtool as kv; print(kv.__version__)'", home)
    assert (status, printed) == (0, f"{__version__}\n")
    status, printed = shell("pip check", home)
    assert status == 0, printed


@pytest.mark.needs_onnxruntime("1.29")
def test_a_growing_decoder_runs_on_an_old_runtime(home: Path) -> None:
    text = page("guides/hugging-face.md")
    steps = [step for step in examples(text) if is_run("docs/guides/hugging-face.md", step)]
    for step in steps:
        follow(step, home)
    expected = (home / "tokens.txt").read_text(encoding="utf-8")
    python = installed("onnxruntime", OLD)
    assert shell(f"'{python}' host.py old.onnx 7 3 11", home) == (0, expected)
    assert len(expected.split()) == 23


@pytest.mark.needs_onnxruntime("1.29")
def test_what_a_cache_costs_is_answered_from_python(home: Path) -> None:
    text = page("guides/cache-cost.md")
    found = list(examples(text))
    told = [follow(example, home) for example in found]
    last = [
        words for example, words in zip(found, told, strict=True) if example.language == "python"
    ]
    assert re.search(r"^256 B for a token\n", last[-1])
    assert (home / "decoder.html").read_text(encoding="utf-8").startswith("<!")
