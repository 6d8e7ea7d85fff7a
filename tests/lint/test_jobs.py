"""Work in processes: results in order, and one that dies does not take the others with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onnx_kvtool.lint.jobs import run_jobs

ROOT = Path(__file__).resolve().parents[2]


def double(item: str) -> str:
    time.sleep(0.05 if item == "a" else 0)
    return item * 2


def fragile(item: str) -> str:
    if item == "kills":
        os._exit(7)
    return item * 2


def died(item: str) -> str:
    return f"{item} died"


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_items(jobs: int) -> None:
    assert list(run_jobs(double, ["a", "b", "c"], jobs, died)) == ["aa", "bb", "cc"]


def test_no_items_are_no_results() -> None:
    assert list(run_jobs(double, [], 2, died)) == []


@pytest.mark.long
def test_an_item_that_kills_its_process_does_not_stop_the_rest() -> None:
    items = ["a", "kills", "b", "c"]
    assert list(run_jobs(fragile, items, 2, died)) == ["aa", "kills died", "bb", "cc"]


@pytest.mark.long
def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path: Path) -> None:
    """Each worker imports the script, and must not start workers in its turn."""
    script = tmp_path / "lint.py"
    script.write_text(
        "from onnx_kvtool.commands.check import CheckRequest, run\n"
        "from onnx_kvtool.core.errors import UsageError\n"
        "try:\n"
        "    run(CheckRequest(('a.onnx', 'b.onnx'), isolated=True, jobs=2))\n"
        "except UsageError as error:\n"
        "    print(error.message, error.help, sep='\\n')\n",
        encoding="utf-8",
    )
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"")
    result = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    message, help = result.stdout.splitlines()
    assert message == "no worker process could start"
    assert 'below `if __name__ == "__main__":`' in help
    assert result.returncode == 0
