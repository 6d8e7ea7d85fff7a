"""Opening files that may be pipes, without waiting for ever."""

from __future__ import annotations

import errno
import os
import select
import stat

__all__ = ["is_pipe", "patient"]

_PATIENCE = 10.0
"""Seconds that a pipe with a name may take until something is in it."""


def is_pipe(path: str) -> bool:
    """Return whether a path is a pipe with a name, which may have no writer."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode) and not _is_of_a_process(path)
    except (OSError, ValueError):
        return False


def patient(path: str, flags: int) -> int:
    """Open a file: the `opener` of `open`.

    A pipe of a shell, as in `<(command)`, has a writer, and is waited for.

    Raises:
        OSError: If nothing is written to a pipe with a name in time.
    """
    if not is_pipe(path):
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not select.select([descriptor], [], [], _PATIENCE)[0]:
        os.close(descriptor)
        raise OSError(errno.EAGAIN, f"it is a pipe, and nothing is in it after {_PATIENCE:g} s")
    os.set_blocking(descriptor, True)
    return descriptor


def _is_of_a_process(path: str) -> bool:
    return os.path.abspath(path).startswith(("/dev/", "/proc/"))
