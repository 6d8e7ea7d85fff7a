"""Temporary files, and those that killed processes have left."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator

if sys.platform != "win32":
    import fcntl

__all__ = ["remove_stale", "temporary_file"]

_NAME = re.compile(r"\.kvtool-[0-9a-f]{16}\.tmp")
_ATTEMPTS = 8


@contextlib.contextmanager
def temporary_file(directory: str, mode: int) -> Iterator[tuple[str, int]]:
    """Create a file whose name is hidden, short, and no model's; the block has to rename it.

    It is in use as long as the block lasts: `remove_stale` leaves it alone. A block that fails
    leaves nothing behind.

    Args:
        directory: Where to create it.
        mode: Its permissions, before the umask.

    Yields:
        Its path, and a descriptor to write to, which the block closes.

    Raises:
        OSError: If the system refuses.
    """
    for _ in range(_ATTEMPTS):
        # A name of its own: that of the target may already be the longest that is allowed.
        path = os.path.join(directory, f".kvtool-{secrets.token_hex(8)}.tmp")
        claim = None
        try:
            descriptor = os.open(path, _FLAGS, mode)
            claim = _claim(descriptor)
            if claim is not None and os.fstat(claim).st_nlink == 0:
                os.close(descriptor)
                continue  # another process took it for a stale one before it was claimed
            yield path, descriptor
            return
        except BaseException:
            # Of any kind: an interrupt must not leave a half-written file either.
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            if claim is not None:
                os.close(claim)
    raise BlockingIOError(f"temporary files in `{directory}` are removed by another process")


def remove_stale(directory: str) -> None:
    """Remove the temporary files of processes that were killed, as far as the system lets.

    A process holds a lock on its temporary file, which ends with it. Where there are no such locks
    (Windows, some network file systems), nothing is removed.

    Args:
        directory: Where to look; directories below are left out.
    """
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(directory or ".") as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                _remove_unclaimed(entry.path)


_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def _claim(descriptor: int) -> int | None:
    """Lock a file until the descriptor that is returned is closed; None where that cannot be."""
    if sys.platform == "win32":
        return None
    # The lock is that of the open file: it outlives the first descriptor, and ends with the last.
    claim = os.dup(descriptor)
    with contextlib.suppress(OSError):
        fcntl.flock(claim, fcntl.LOCK_EX)
    return claim


def _remove_unclaimed(path: str) -> None:
    with contextlib.suppress(OSError):
        # Neither through a link nor waiting for the writer of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
        finally:
            os.close(descriptor)
