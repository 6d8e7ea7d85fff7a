"""The moments at which a process touches files, each of which can be made to go wrong.

Runs inside the process that is tested. A point comes before each call that creates, writes,
flushes, renames, links or removes a file, and in the middle of each write, when half of the bytes
are there. What Python reads, and what C++ code does to files, has no points.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from typing import Any

__all__ = ["ERRORS", "SIGNALS", "THEIRS", "Points"]

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
"""Faults that end the process."""

ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES")
"""Faults that fail one call, by the name of the error."""

THEIRS = b"what another process has written"
"""Content of `m.onnx` after the fault `change`."""

_CALLS = (
    *("fsync", "replace", "rename", "link", "symlink", "unlink", "remove", "rmdir", "mkdir"),
    *("chmod", "fchmod", "chown", "fchown", "truncate", "ftruncate"),
)
_WRITES = os.O_WRONLY | os.O_RDWR


class Points:
    """Counts points, writes their names down, and lets one go wrong.

    Args:
        trace: Descriptor to which the name of each point is written, a line each, when it is met.
        at: Number of the point that goes wrong, from 1; 0 for none.
        fault: What happens there: a key of `SIGNALS`, or an error of the system such as `ENOSPC`,
            or what another process does to `m.onnx`: `change` or `vanish`.
    """

    def __init__(self, trace: int, at: int, fault: str) -> None:
        self._write = os.write
        self._kill = os.kill
        self._unlink = os.unlink
        self._other = builtins.open
        self._trace = trace
        self._at = at
        self._fault = fault
        self._met = 0

    def meet(self, name: str) -> None:
        """Be at a point."""
        self._met += 1
        self._write(self._trace, f"{name}\n".encode())
        if self._met != self._at:
            return
        if self._fault in SIGNALS:
            self._kill(os.getpid(), SIGNALS[self._fault])
            return
        if self._fault in ("change", "vanish"):
            self._unlink("m.onnx")
            if self._fault == "change":
                self._other("m.onnx", "wb").write(THEIRS)
            return
        number = getattr(errno, self._fault)
        raise OSError(number, os.strerror(number))

    def install(self) -> None:
        """Put the points into `os` and `open` of this process."""
        for name in _CALLS:
            if hasattr(os, name):
                setattr(os, name, self._before(name, getattr(os, name)))
        opened = os.open

        def open_descriptor(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & _WRITES:
                self.meet("open")
            return opened(path, flags, *args, **kwargs)

        os.open = open_descriptor
        plain = builtins.open

        def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if mode not in ("wb", "xb"):
                return plain(file, mode, *args, **kwargs)
            if not isinstance(file, int):
                self.meet("open")
            return io.BufferedWriter(_File(file, mode, self))

        builtins.open = open_file
        io.open = open_file

    def _before(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def met(*args: Any, **kwargs: Any) -> Any:
            self.meet(name)
            return call(*args, **kwargs)

        return met


class _File(io.FileIO):
    """A file whose writes have points."""

    def __init__(self, file: Any, mode: str, points: Points) -> None:
        super().__init__(file, mode)
        self._points = points

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._points.meet("write")
        half = len(view) // 2
        if half:
            self._all(view[:half])
            self._points.meet("half")
        self._all(view[half:])
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._points.meet("truncate")
        return super().truncate(size)

    def _all(self, view: memoryview) -> None:
        while view:
            view = view[super().write(view) or 0 :]
