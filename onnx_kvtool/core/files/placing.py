"""Copying and linking data files without overwriting any."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from typing import BinaryIO

from onnx_kvtool.core.choices import ExternalData
from onnx_kvtool.core.errors import UnwritableOutput, UsageError
from onnx_kvtool.core.files.atomic import replacing, watch
from onnx_kvtool.core.files.places import is_inside

__all__ = ["place_files"]

_BLOCK_BYTES = 1 << 20


def place_files(
    files: Sequence[tuple[str, str]],
    directory: str,
    how: ExternalData | None,
    check: Callable[[], None],
    then: Callable[[], None] | None = None,
    is_done: Callable[[], bool] | None = None,
) -> list[str]:
    """Place data files below `directory`; see `place_external_data`.

    Args:
        files: Location, relative to the model, and source path of each file.
        directory: Directory of the output.
        how: As for `place_external_data`.
        check: Called before the first file is touched; raises if one must not be read.
        then: As for `place_external_data`.
        is_done: Likewise.
    """
    notes: list[str] = []
    with _undoing(is_done) as created:
        _place(files, directory, how, check, notes, created)
        if then is not None:
            then()
    return notes


def _place(
    files: Sequence[tuple[str, str]],
    directory: str,
    how: ExternalData | None,
    check: Callable[[], None],
    notes: list[str],
    created: list[str],
) -> None:
    """Place data files; notes for people and the paths of what is created are added to lists."""
    missing = [
        (location, source)
        for location, source in files
        if not _same_place(source, os.path.join(directory, location))
    ]
    if not missing:
        return
    if how == "reference":
        raise UsageError(
            f"an output in `{directory}` cannot refer to the data file `{missing[0][1]}`: "
            "a location cannot leave the directory of its model",
            help="write beside the source, or use --external-data copy",
        )
    check()
    if not os.path.isdir(directory):
        raise UnwritableOutput(f"`{directory}` is not a directory", help="create it first")
    for location, source in missing:
        target = os.path.join(directory, location)
        if _is_there(source, target):
            notes.append(f"`{target}` is there already, with the data of the source")
            continue
        _make_parents(target, directory, created)
        if how == "link":
            _link(source, target)
        else:
            _copy(source, target)
        created.append(target)
        notes.append(f"{'linked' if how == 'link' else 'copied'} `{source}` to `{target}`")


def _same_place(source: str, target: str) -> bool:
    return os.path.realpath(source) == os.path.realpath(target)


def _is_there(source: str, target: str) -> bool:
    """Return whether `target` is `source` or has its bytes.

    Raises:
        UnwritableOutput: If something else is in the way, or cannot be read.
    """
    if not os.path.lexists(target):
        return False
    try:
        same = os.path.isfile(target) and (
            os.path.samefile(source, target) or _same_bytes(source, target)
        )
    except OSError as error:
        raise UnwritableOutput(f"cannot read `{target}`: {error.strerror or error}") from error
    if not same:
        raise UnwritableOutput(
            f"`{target}` exists and is not the data file of the source, `{source}`",
            help="write to another directory, or remove it",
        )
    return True


def _same_bytes(one: str, other: str) -> bool:
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb") as a, open(other, "rb") as b:
        while block := a.read(_BLOCK_BYTES):
            if block != b.read(_BLOCK_BYTES):
                return False
    return True


def _make_parents(target: str, directory: str, created: list[str]) -> None:
    """Create the directories between `directory` and `target`, those created noted."""
    parent = os.path.dirname(target)
    pending = []
    while not os.path.isdir(parent):
        pending.append(parent)
        parent = os.path.dirname(parent)
    top = os.path.realpath(directory)
    if not is_inside(os.path.realpath(parent), top):
        raise UnwritableOutput(f"`{parent}` is a link that leaves `{directory}`")
    try:
        for path in reversed(pending):
            if not os.path.isdir(path):  # `s/..` exists once `s` does
                os.mkdir(path)
                created.append(path)
    except OSError as error:
        raise UnwritableOutput(f"cannot create `{path}`: {error.strerror or error}") from error


def _link(source: str, target: str) -> None:
    try:
        watch(target)
        # The file itself: a hard link to a symbolic link would be as relative as that is.
        os.link(os.path.realpath(source), target)
    except (AttributeError, OSError) as error:  # not every system has links
        reason = getattr(error, "strerror", None) or error
        raise UnwritableOutput(
            f"cannot link `{source}` to `{target}`: {reason}",
            help="use --external-data copy",
        ) from error


def _copy(source: str, target: str) -> None:
    try:
        # Without a buffer, which would not know of the seeking for holes.
        file = open(source, "rb", buffering=0)  # noqa: SIM115 - the block below closes it
    except OSError as error:
        raise UnwritableOutput(f"cannot read `{source}`: {error.strerror or error}") from error
    with file, replacing(target) as out:
        size = os.fstat(file.fileno()).st_size
        for start, end in _data_ranges(file, size):
            _copy_range(file, out, start, end)
        out.truncate(size)


def _data_ranges(file: FileIO, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that hold data; all of it where holes cannot be asked for."""
    if not hasattr(os, "SEEK_DATA"):
        yield 0, size
        return
    end = 0
    while end < size:
        try:
            start = os.lseek(file.fileno(), end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # this file system cannot tell
                yield end, size
            return  # only a hole is left
        end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        yield start, end


def _copy_range(file: FileIO, out: BinaryIO, start: int, end: int) -> None:
    file.seek(start)
    out.seek(start)
    while start < end:
        block = file.read(min(_BLOCK_BYTES, end - start))
        if not block:
            raise OSError(f"`{file.name}` became shorter while it was copied")
        out.write(block)
        start += len(block)


@contextlib.contextmanager
def _undoing(is_done: Callable[[], bool] | None) -> Iterator[list[str]]:
    """Collect what is created, and remove it again if the block fails before all is done."""
    created: list[str] = []
    try:
        yield created
    except BaseException:
        # An interrupt may come when the model is in place, which then needs its data.
        is_kept = is_done is not None and is_done()
        for path in () if is_kept else reversed(created):
            with contextlib.suppress(OSError):
                os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
        raise
