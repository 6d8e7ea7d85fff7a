"""Fixtures and settings that every test shares."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings
from packaging.version import Version

from onnx_kvtool.cli import app

ROOT = Path(__file__).resolve().parent.parent

# A property that fails prints how to run the very example again; time limits are for benchmarks.
# CI draws the same examples each time, so that what lands does not depend on luck; every other run
# searches on.
settings.register_profile("kvtool", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("kvtool")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the installed onnxruntime is too old for: Python 3.10 gets none above 1.23."""
    for mark in item.iter_markers("needs_onnxruntime"):
        (wanted,) = mark.args
        installed = version("onnxruntime")
        if Version(installed) < Version(wanted):
            pytest.skip(f"needs onnxruntime {wanted}, got {installed}")


@pytest.fixture
def root() -> Path:
    """The directory of the checkout."""
    return ROOT


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text without colour and at a fixed width, whatever the terminal of the tester is."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def kvtool(plain_environment: None) -> Callable[..., Result]:
    """Run `kvtool` with these arguments in this process."""

    def run(*args: str | os.PathLike[str], input: bytes | None = None) -> Result:
        arguments = [os.fspath(arg) for arg in args]
        return CliRunner().invoke(app, arguments, input=input, catch_exceptions=False)

    return run


@pytest.fixture
def kvtool_process(plain_environment: None) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run `kvtool` with these arguments in a process of its own."""

    def run(
        *args: str | os.PathLike[str], input: bytes | None = None, cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "onnx_kvtool", *args]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command,
            input=input,
            cwd=cwd,
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )

    return run
