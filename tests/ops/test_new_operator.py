"""Adding an operator touches its trait, its rule, its kernel, and a line of each table: no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_every_command_knows_an_operator_by_its_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.ops.new_operator", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
