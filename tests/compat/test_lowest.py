"""The lowest versions that `pyproject.toml` allows run every command, and so do the newest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.compat

MINORS = range(10, 15)
PYTHONS = {
    minor: found
    for minor in MINORS
    if (found := shutil.which(f"python3.{minor}"))
    and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
}


def script(*command: str | Path) -> subprocess.CompletedProcess[str]:
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # uv
    return subprocess.run(
        ["bash", *command],
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_command_line_runs_with_the_lowest_versions(root: Path) -> None:
    """CI runs all of the quick suite there, on the oldest Python and on the newest."""
    python = PYTHONS[min(PYTHONS)] if PYTHONS else sys.executable
    result = script(root / ".ci" / "lowest", python, "-q", "-n", "0", "tests/cli")
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.fixture
def wheel(root: Path, tmp_path: Path) -> Path:
    """The wheel of this checkout."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=root, check=True, capture_output=True, timeout=120)
    (built,) = tmp_path.iterdir()
    return built


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
@pytest.mark.parametrize("minor", MINORS)
def test_the_wheel_runs_by_itself(root: Path, wheel: Path, minor: int, resolution: str) -> None:
    """CI does so on every system."""
    if minor not in PYTHONS:
        pytest.skip(f"no python3.{minor} on the path")
    result = script(root / ".ci" / "wheel", wheel, PYTHONS[minor], resolution)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
