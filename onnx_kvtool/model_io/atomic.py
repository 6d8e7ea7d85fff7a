"""Atomic writing of files, and opening files that may be pipes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import select
import stat
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from onnx_kvtool.core.errors import UnwritableOutput

# Temporary files, and stale ones of killed processes.


if sys.platform != "win32":
    import fcntl


_NAME = re.compile(r"\.kvtool-[0-9a-f]{16}\.tmp")
_ATTEMPTS = 8


@contextlib.contextmanager
def temporary_file(directory: str, mode: int) -> Iterator[tuple[str, int]]:
    """Create a file whose name is hidden, short, and no model's; the block has to rename it.

    It is in use as long as the block lasts: `remove_stale` leaves it alone. A block that fails
    leaves nothing behind.

    Yields:
        Its path, and a descriptor to write to, which the block closes.

    Raises:
        OSError: If the system refuses.
    """
    for _ in range(_ATTEMPTS):
        # Not derived from the target's name, which may already have the maximal length.
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
            # Any exception: an interrupt must not leave a half-written file either.
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
        # Do not follow links, and do not wait for the writer of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
        finally:
            os.close(descriptor)


# Atomic writing of files.


Stamp = tuple[int, int, int, int]
"""What a file has another of once it was written or replaced: its number, size and times.

The second time is that of a change of any kind, which no program can set back.
"""


def stamp(path: str | os.PathLike[str]) -> Stamp | None:
    """Return the stamp of a file; None when there is none, or the system does not say."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


_watched: list[tuple[str, Stamp | None]] = []
_direct: list[str] = []


def watch(name: str | os.PathLike[str], *, is_direct: bool = False) -> None:
    """Note that a file is about to be written, by this process or another, for `written`.

    If `is_direct`, no file is replaced, as for a pipe, so that it counts as written from now on.
    """
    if is_direct:
        _direct.append(os.fspath(name))
    else:
        _watched.append((os.fspath(name), stamp(name)))


def written() -> list[str]:
    """Return the names of what was watched and is now another file than it was, each once.

    Asked after an interrupt: whether it came before or after the file was renamed into place, and
    whether a file was taken away again, no other record could say for sure.
    """
    changed = [name for name, before in _watched if stamp(name) != before]
    return list(dict.fromkeys((*changed, *_direct)))


def write_bytes(
    target: str | os.PathLike[str], data: bytes, *, expected: Stamp | None = None
) -> None:
    """Write `data` as the whole content of `target`, or leave `target` as it was.

    See `replacing` for what happens to links, modes and special files, and for `expected`.

    Raises:
        UnwritableOutput: If the system refuses; nothing is left behind.
    """
    with replacing(target, expected=expected) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(
    target: str | os.PathLike[str], *, expected: Stamp | None = None
) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `target` once the block has ended without an exception.

    The bytes go to a temporary file in the same directory, reach the disk, and are then renamed
    into place. Whatever interrupts this, `target` keeps its content and no other file is left; a
    process that is killed leaves a hidden file, which the next one that writes there removes.

    A symbolic link is followed, and the file it points at is replaced; another hard link to it
    keeps the old content. A file that is replaced keeps its permissions and, where the system lets,
    its owner; one that must not be written to is not replaced. A new one gets the permissions that
    the umask leaves. A device or a pipe cannot be replaced and is written to directly.

    Args:
        target: Path of the file.
        expected: Stamp of the file that is to be replaced; None to replace any, or none.

    Raises:
        UnwritableOutput: If `target` has another stamp than expected, so that the work of somebody
            else would be lost; or if the system refuses (no space, no permission, no such
            directory), also when it does so inside the block.
    """
    name = os.fspath(target)
    with _writing(name):
        place = os.path.realpath(name)
        before = _status(place)
        if before is not None and not stat.S_ISREG(before.st_mode):
            watch(name, is_direct=True)
            with open(place, "wb") as special:
                yield special
            return
        _check_mode(place, before)
        directory = os.path.dirname(place)
        remove_stale(directory)
        # A new file leaves its permissions to the umask; a private one is never open to others.
        mode = 0o666 if before is None else 0o600
        with temporary_file(directory, mode) as (path, descriptor):
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                try:
                    os.fsync(file.fileno())
                except OSError as error:  # not every file system can be asked to write to the disk
                    if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                        raise
            if before is not None:
                _keep_owner(path, before)
                os.chmod(path, stat.S_IMODE(before.st_mode))
            if expected is not None and stamp(place) != expected:
                raise UnwritableOutput(
                    f"cannot write `{name}`: another process has changed it since it was read",
                    help="run the command again",
                )
            watch(place)
            _rename(path, place)


def check_writable(target: str | os.PathLike[str]) -> None:
    """Refuse what `replacing` would refuse after the work, as far as it can be known before.

    Raises:
        UnwritableOutput: If there is no such directory, or what is there must not be written to.
    """
    name = os.fspath(target)
    with _writing(name):
        place = os.path.realpath(name)
        before = _status(place)
        if before is not None and stat.S_ISDIR(before.st_mode):
            directory = place
        elif name.endswith(_SEPARATORS):  # realpath takes it off
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        elif before is not None and not stat.S_ISREG(before.st_mode):
            return
        else:
            _check_mode(place, before)
            directory = os.path.dirname(place)
        if not stat.S_ISDIR(os.stat(directory).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


_SEPARATORS = (os.sep, os.altsep or os.sep)


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    """Report any failure in the block as `name` that cannot be written."""
    try:
        yield
    except OSError as error:
        raise UnwritableOutput(
            f"cannot write `{name}`: {error.strerror or error}", help=_remedy(error)
        ) from error
    except ValueError as error:
        if "\0" not in name:
            raise
        raise UnwritableOutput(f"cannot write `{name}`: the name has a null character") from error


def _status(place: str) -> os.stat_result | None:
    """Return what the system knows of the file at `place`; None when there is none."""
    try:
        return os.stat(place)
    except FileNotFoundError:
        return None


_PAUSES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Seconds between attempts to rename, where others keep files open."""


def _rename(path: str, place: str) -> None:
    """Rename a file into place; Windows lets nobody while a scanner or an index reads either."""
    for pause in _PAUSES if sys.platform == "win32" else ():
        try:
            os.replace(path, place)
        except PermissionError:  # noqa: PERF203 - once in most cases
            time.sleep(pause)
        else:
            return
    os.replace(path, place)


def _check_mode(place: str, before: os.stat_result | None) -> None:
    """Refuse to replace a read-only file: renaming asks for the mode of the directory alone."""
    if before is not None and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only")


def _keep_owner(path: str, before: os.stat_result) -> None:
    """Give a file the owner and group of another, as far as that is this user's to give."""
    if not hasattr(os, "chown"):
        return
    now = os.stat(path)
    if (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.chown(path, before.st_uid, before.st_gid)
    except OSError:
        with contextlib.suppress(OSError):  # a user may choose among the own groups
            os.chown(path, -1, before.st_gid)


def _remedy(error: OSError) -> str | None:
    if isinstance(error, FileNotFoundError):
        return "create the directory first"
    if isinstance(error, IsADirectoryError):
        return "name a file, not a directory"
    return None


# Opening files that may be pipes, without waiting forever.


_PATIENCE = 10.0
"""Seconds that a pipe with a name may take until something is in it."""


def is_pipe(path: str) -> bool:
    """Return whether a path is a pipe with a name, which may have no writer."""
    try:
        of_process = os.path.abspath(path).startswith(("/dev/", "/proc/"))
        return stat.S_ISFIFO(os.stat(path).st_mode) and not of_process
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
