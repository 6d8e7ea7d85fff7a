"""What a worker process does when it is told to end, or is left alone."""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from types import FrameType
from typing import TypeVar

from onnx_kvtool.guard.early_sympy import put_off

__all__ = ["begin", "ended_with"]

T = TypeVar("T")

_PATIENCE = 5
"""Seconds in which a worker that is told to end may tidy up."""

_at_work = threading.Event()


def begin(is_up: Event) -> None:
    """Make this worker end with its parent, and tell it that the worker is ready."""
    _end_with_parent()
    put_off()
    is_up.set()


def _end_with_parent() -> None:
    """Let this worker end in order when it gets SIGTERM, and when its parent is no more.

    An interrupt at the keyboard reaches all processes of a terminal; it is left to the parent,
    which ends its workers. A parent that is killed cannot, and its workers would wait for work
    forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_watch_parent, daemon=True).start()


def ended_with(work: Callable[[str], T], item: str) -> T:
    """Return `work(item)`; a worker that is told to end meanwhile is gone when it has tidied up.

    The pool would take the exception for a result, and go on.
    """
    _at_work.set()
    try:
        return work(item)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    finally:
        _at_work.clear()


def _watch_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    if sys.platform == "win32":  # where `kill` ends a process before it has tidied up
        _thread.interrupt_main(signal.SIGTERM)
        time.sleep(_PATIENCE)
        os._exit(128 + signal.SIGTERM)
    else:
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> None:
    """End this worker, which tidies up if it is at work.

    An exception that comes in between can be lost: in a callback of a weak reference, of which an
    import makes many, or in a library that catches them all. Between items there is nothing to tidy
    up; at work the system ends it when it is out of patience.
    """
    signal.signal(number, signal.SIG_IGN)
    if not _at_work.is_set():
        os._exit(128 + number)
    if sys.platform != "win32":  # which has no such signal, and ends processes without asking
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_PATIENCE)
    sys.exit(128 + number)
