"""What is under way, on standard error, for people who wait."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from onnx_kvtool.core.machine import Progress, silent

__all__ = ["shown_progress"]

_PATIENCE = 1.0  # seconds


@contextlib.contextmanager
def shown_progress(*, enabled: bool = True, at_once: bool = True) -> Iterator[Progress]:
    """Yield what shows on a terminal what is under way.

    The line appears when a second has passed, however long the work at hand is silent, and is gone
    after the block. Where standard error is no terminal, nothing is ever shown.

    Args:
        enabled: Whether anything is shown.
        at_once: Whether the second begins with the block; if not, with the first that is said, and
            there is no thread before.
    """
    if not enabled or not sys.stderr.isatty():
        yield silent
        return
    display = _Display()
    if at_once:
        display.begin()
    try:
        yield display.say
    finally:
        display.close()


class _Display:
    """A line that is shown once its time has come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: tuple[str, int, int] = ("working", 0, 0)
        self._shown: Progress | None = None
        self._stack = contextlib.ExitStack()
        self._is_closed = False
        self._timer = threading.Timer(_PATIENCE, self._open)
        self._timer.daemon = True

    def begin(self) -> None:
        if self._timer.ident is None:
            self._timer.start()

    def say(self, what: str, part: int = 0, parts: int = 0) -> None:
        self.begin()
        with self._lock:
            self._latest = (what, part, parts)
            if self._shown is not None:
                self._shown(what, part, parts)

    def _open(self) -> None:
        from onnx_kvtool.report.text import progress_line

        with self._lock:
            if not self._is_closed:
                self._shown = self._stack.enter_context(progress_line())
                self._shown(*self._latest)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_closed = True
            self._stack.close()
