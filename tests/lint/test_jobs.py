"""Work in processes: results in order, and one that dies does not take the others with it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onnx_kvtool.lint.jobs import run_jobs
from tests.grids import thinned
from tests.lint.job_work import Late, died, double, fragile, ran, swallows, waits

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_items(jobs: int) -> None:
    assert ran(double, ["a", "b", "c"], jobs) == ["aa", "bb", "cc"]


def test_no_items_are_no_results() -> None:
    assert ran(double, []) == []


@pytest.mark.long
def test_an_item_that_kills_its_process_does_not_stop_the_rest() -> None:
    assert ran(fragile, ["a", "kills", "b", "c"]) == ["aa", "kills died", "bb", "cc"]


@pytest.mark.long
def test_workers_are_gone_after_a_block_that_is_left_early() -> None:
    processes = []
    left = contextlib.suppress(KeyboardInterrupt)
    with left, run_jobs(waits, ["", "100", "100"], 2, died) as results:
        next(results)
        processes = multiprocessing.active_children()
        raise KeyboardInterrupt
    assert processes
    assert not any(process.is_alive() for process in processes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_read", [False, True], ids=["work is unpickled", "work goes on"])
def test_a_worker_that_does_not_hear_of_its_end_is_ended(tmp_path: Path, is_read: bool) -> None:
    """What ends a worker is an exception, which is lost in an import or where all are caught."""
    items = [str(tmp_path / name) for name in ("first", "second")]
    work = swallows if is_read else Late(items[0])
    left = contextlib.suppress(KeyboardInterrupt)
    with left, run_jobs(work, items, 2, died):
        until = time.monotonic() + 60
        while not any(tmp_path.iterdir()) and time.monotonic() < until:
            time.sleep(0.02)
        begun = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 50
    assert not any(process.is_alive() for process in multiprocessing.active_children())


COPIED = """
import sys, threading
sys.path.insert(0, {tests!r})
import job_work
job_work.MARK = "of the parent"
{before}
print(*job_work.ran(job_work.marked, ["a", "kills", "b"], may_copy=True), sep="; ")
"""
BEFORE = {
    "a process that does one thing is copied": ("", "a of the parent"),
    "one with a thread of Python is not": (
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "a of nobody",
    ),
    "one with onnxruntime is not": ("import onnxruntime", "a of nobody"),
}


PREPARED = """
import sys
sys.path.insert(0, {tests!r})
import job_work
for may_copy in (True, False):
    done = job_work.ran(job_work.marked, ["a", "b"], may_copy=may_copy, prepare=job_work.mark)
    print(done)
    job_work.MARK = "of the parent"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems copy no process")
def test_copies_have_what_was_prepared_and_others_take_no_time_for_it(tmp_path: Path) -> None:
    body = PREPARED.format(tests=str(Path(__file__).parent)).strip().replace("\n", "\n    ")
    script = tmp_path / "prepared.py"
    script.write_text(f"if __name__ == '__main__':\n    {body}\n", encoding="utf-8")
    result = run_script(script, tmp_path)
    expected = [["a as prepared", "b as prepared"], ["a of nobody", "b of nobody"]]
    assert result.stdout.splitlines() == list(map(str, expected)), result.stderr


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other systems copy no process")
@pytest.mark.parametrize("name", thinned([*BEFORE], 6))
def test_a_process_is_copied_only_where_it_is_alone(name: str, tmp_path: Path) -> None:
    before, first = BEFORE[name]
    text = COPIED.format(tests=str(Path(__file__).parent), before=before)
    body = text.strip().replace("\n", "\n    ")
    script = tmp_path / "copied.py"
    script.write_text(f"if __name__ == '__main__':\n    {body}\n", encoding="utf-8")
    result = run_script(script, tmp_path)
    assert result.stdout == f"{first}; kills died; b of nobody\n", result.stderr


def run_script(script: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,  # Python's pool of processes may wait for ever where a worker was killed
    )


@pytest.mark.exhaustive
def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path: Path) -> None:
    """Each worker imports the script, and must not start workers in its turn."""
    script = tmp_path / "lint.py"
    script.write_text(
        "from onnx_kvtool.commands.check import run\n"
        "from onnx_kvtool.commands.requests import CheckRequest\n"
        "from onnx_kvtool.core.errors import UsageError\n"
        "try:\n"
        "    run(CheckRequest(paths=('a.onnx', 'b.onnx'), isolated=True, jobs=2))\n"
        "except UsageError as error:\n"
        "    print(error.message, error.help, sep='\\n')\n",
        encoding="utf-8",
    )
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"")
    result = run_script(script, tmp_path)
    message, help = result.stdout.splitlines()
    assert message == "no worker process could start"
    assert 'below `if __name__ == "__main__":`' in help
    assert result.returncode == 0
