"""Files that appear as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

from onnx_kvtool.core.errors import UnwritableOutput

__all__ = ["replacing", "write_bytes"]


def write_bytes(target: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` as the whole content of `target`, or leave `target` as it was.

    See `replacing` for what happens to links, modes and special files.

    Raises:
        UnwritableOutput: If the system refuses; nothing is left behind.
    """
    with replacing(target) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `target` once the block has ended without an exception.

    The bytes go to a temporary file in the same directory, reach the disk, and are then renamed
    into place. Whatever interrupts this, `target` keeps its content and no other file is left.
    A symbolic link is followed, and the file it points at is replaced. A file that is replaced
    keeps its permissions; a new one gets those the umask leaves. A device or a pipe cannot be
    replaced and is written to directly.

    Raises:
        UnwritableOutput: If the system refuses (no space, no permission, no such directory), also
            when it does so inside the block.
    """
    name = os.fspath(target)
    try:
        place = os.path.realpath(name)
        mode = _mode(place)
        if mode is not None and not stat.S_ISREG(mode):
            with open(place, "wb") as special:
                yield special
            return
        with _temporary(place, mode) as file:
            yield file
    except OSError as error:
        raise UnwritableOutput(
            f"cannot write `{name}`: {error.strerror or error}", help=_remedy(error)
        ) from error
    except ValueError as error:
        if "\0" not in name:
            raise
        raise UnwritableOutput(f"cannot write {name!r}: the name holds a null character") from error


def _mode(place: str) -> int | None:
    """Return the type and permission bits of the file at `place`; None when there is none."""
    try:
        return os.stat(place).st_mode
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _temporary(place: str, mode: int | None) -> Iterator[BinaryIO]:
    # A short name of its own: `place` may already have the longest name that is allowed.
    path = os.path.join(os.path.dirname(place), f".kvtool-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        # Created with 0o666, so that the umask decides as it does for any new file.
        with open(os.open(path, flags, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(path, stat.S_IMODE(mode))
        os.replace(path, place)
    except BaseException:
        # Of any kind: an interrupt must not leave a half-written file either.
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _remedy(error: OSError) -> str | None:
    if isinstance(error, FileNotFoundError):
        return "create the directory first"
    if isinstance(error, IsADirectoryError):
        return "name a file, not a directory"
    return None
