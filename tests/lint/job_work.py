"""What the processes of `test_jobs` do; each imports this file, and nothing that takes long."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from onnx_kvtool.lint.jobs import run_jobs

MARK = "of nobody"


def double(item: str) -> str:
    time.sleep(0.05 if item == "a" else 0)
    return item * 2


def fragile(item: str) -> str:
    if item == "kills":
        os._exit(7)
    return item * 2


def waits(item: str) -> str:
    time.sleep(float(item or 0))
    return item


def swallows(item: str) -> str:
    """Touch a file, and wait, whatever anybody says."""
    Path(item).touch()
    deaf(100)
    return item


def deaf(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(BaseException):
            time.sleep(until - time.monotonic())


class Late:
    """Work that does not get to be unpickled, and touches a file while it tries."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __setstate__(self, state: dict[str, str]) -> None:
        swallows(state["path"])

    def __call__(self, item: str) -> str:
        return item


def marked(item: str) -> str:
    if item == "kills":
        time.sleep(0.5)  # the result of the item before has come by then
        os._exit(7)
    return f"{item} {MARK}"


def died(item: str) -> str:
    return f"{item} died"


def mark() -> None:
    global MARK  # noqa: PLW0603 - copies of this process have it
    MARK = "as prepared"


def ran(work, items: list[str], jobs: int = 2, *, may_copy: bool = False, prepare=int) -> list[str]:
    with run_jobs(work, items, jobs, died, may_copy=may_copy, prepare=prepare) as results:
        return list(results)
