"""What is installed is whole: every module, the marker of typing, and the data files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(root: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=root,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = next(n for n in archive.namelist() if n.endswith("/entry_points.txt"))
        assert b"kvtool = onnx_kvtool.cli:main" in archive.read(entry_points)
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())
    sources = {
        path.relative_to(root).as_posix()
        for path in (root / "onnx_kvtool").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert packed == sources
    assert "onnx_kvtool/py.typed" in packed
