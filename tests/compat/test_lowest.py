"""The lowest versions that `pyproject.toml` allows run every command, on the oldest Python here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.compat


def test_the_command_line_runs_with_the_lowest_versions(root: Path) -> None:
    """CI runs all of the quick suite there, on the oldest Python and on the newest."""
    oldest = shutil.which("python3.10")
    found = oldest and subprocess.run([oldest, "-c", ""], capture_output=True, check=False)
    python = oldest if found and found.returncode == 0 else sys.executable
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # uv
    command = ["bash", root / ".ci" / "lowest", python, "-q", "-n", "0", "tests/cli"]
    result = subprocess.run(
        command,
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
