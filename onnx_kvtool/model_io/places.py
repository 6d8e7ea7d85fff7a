"""Paths that can be given, and copying or linking data files without overwriting any."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from onnx_kvtool.core.choices import ExternalData
from onnx_kvtool.core.errors import UnreadableModel, UnwritableOutput, UsageError
from onnx_kvtool.core.words import missing_file_help
from onnx_kvtool.model_io.atomic import check_writable, replacing, watch
from onnx_kvtool.model_io.remote import is_remote, shown
from onnx_kvtool.model_io.wire import encoded

# Invalid paths, refused before any work and before the imports that it needs.
#
# Later code would refuse the same paths in the same words. Here, a mistyped name is reported at
# once, and a long run does not end without a place for its result. Only the standard library is
# imported, so that the answer takes no longer than the interpreter.


NOTHING = "/dev/null"
"""The name that git gives to the missing version of a new or deleted file."""

REPLACING = "use `--in-place` to replace the input"


def spoken_name(source: str) -> str:
    """Return what messages call `source`: its path in backticks, or `standard input` for `-`."""
    return "standard input" if source == "-" else f"`{shown(source)}`"


def check_source(
    source: str, *, remote: bool = False, suffix: str = ".onnx", what: str = "model"
) -> None:
    """Refuse a model, or another file to read, that is not there; a URL is not looked at yet.

    Raises:
        UnreadableModel: If there is no such file, it is a directory, or it cannot be opened.
        UsageError: If it is a URL, and must not be.
    """
    if source == "-":
        return
    if is_remote(source):
        if remote:
            return
        raise UsageError(
            f"{spoken_name(source)} is a URL, which `inspect`, `check`, `infer`, `print` and "
            "`diff` read",
            help="fetch the model with its data files first",
        )
    with reading(source, suffix=suffix):
        mode = os.stat(source).st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableModel(
                f"`{source}` is a directory, not a {what}", help=f"name a {what} file in it"
            )
        if stat.S_ISREG(mode):  # to open a pipe could take its content
            with open(source, "rb"):
                pass


def members(source: str) -> str | list[str]:
    """Return the models in a directory that `--phases` wrote; any other path as it is.

    Raises:
        UnreadableModel: If it is a directory without a model.
    """
    if not os.path.isdir(source):
        return source
    found = sorted(str(path) for path in Path(source).glob("*.onnx"))
    if not found:
        raise UnreadableModel(
            f"`{source}` is a directory without a model",
            help="name a model, or a directory that `kvtool raise --phases` wrote",
        )
    return found


@contextlib.contextmanager
def reading(source: str, *, suffix: str = ".onnx") -> Iterator[None]:
    """Report any failure in the block as `source` that cannot be read.

    Raises:
        UnreadableModel: In the place of what the system raises.
    """
    name = spoken_name(source)
    try:
        yield
    except FileNotFoundError as error:
        raise UnreadableModel(
            f"{name} does not exist", help=missing_file_help(source, suffix)
        ) from error
    except OSError as error:
        raise UnreadableModel(f"{name} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        if "\0" not in source:
            raise
        raise UnreadableModel(f"`{source}` cannot be the name of a file") from error


def check_result(
    source: str, output: str | None, *, in_place: bool = False, dry_run: bool = False
) -> None:
    """Refuse a model that is not there, and a place that cannot take what is made of it.

    Args:
        source: Path of the model, or `-`.
        output: As for `check_output`.
        in_place: Whether the result replaces the model.
        dry_run: Whether nothing is going to be written where nobody named a place.

    Raises:
        UnreadableModel: As `check_source`.
        UsageError: As `check_output`.
        UnwritableOutput: Likewise.
    """
    check_source(source)
    if output is not None:
        check_output(source, output, REPLACING)
    elif source != "-" and not dry_run:
        try:
            check_writable(source if in_place else os.path.dirname(source) or os.curdir)
        except UnwritableOutput as error:
            raise UnwritableOutput(
                error.message, help="name another place with `-o OUT`"
            ) from error


def check_output(source: str | None, output: str | None, remedy: str) -> None:
    """Refuse an output that is the input, or that cannot be written.

    Args:
        source: Path of a model that is there, or `-`; None for none, or for several.
        output: Path to write, a directory, or `-`; None for one that is chosen, or for none.
        remedy: What to do instead, if the output is the input.

    Raises:
        UsageError: If both are one file, the output holds the data of a model, or it is a directory
            and the input, being standard input, gives the result no name.
        UnwritableOutput: If the directory is missing, or something there must not be written.
    """
    if output is None or output == "-":
        return
    if is_remote(output):
        raise UsageError(
            f"the output {spoken_name(output)} is a URL, and kvtool writes only files",
            help="name a file, and copy it there",
        )
    if is_directory(output):
        if source == "-":
            raise UsageError(
                f"`{output}` is a directory, and what comes from standard input has no name",
                help="name the file as well",
            )
    elif source is not None and source != "-" and is_same(output, source):
        raise UsageError(f"the output `{output}` is the input", help=remedy)
    else:
        check_stores_no_data(output)
    check_writable(output)


def check_stores_no_data(output: str) -> None:
    """Refuse a file that holds the data of a model beside it or in a directory above.

    Args:
        output: Path to write. A model is no data file, so one with the suffix `.onnx` passes.

    Raises:
        UsageError: If a model refers to it.
    """
    if output.endswith(".onnx") or not os.path.isfile(output):
        return
    path = Path(os.path.realpath(output))
    for directory in (*path.parents,)[:_NEAR]:
        location = path.relative_to(directory).as_posix().encode()
        entry = b"\x0a\x08location\x12" + encoded(len(location)) + location
        for model in directory.glob("*.onnx"):
            if _has(model, entry):
                raise UsageError(
                    f"the output `{output}` belongs to the model `{model}`: it stores its data",
                    help="name another file",
                )


_NEAR = 3
"""How many directories are searched for models: that of a data file, and two above it."""


def _has(path: Path, part: bytes) -> bool:
    """Return whether a file has these bytes in it; one that cannot be read has none."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(part) >= 0
    except (OSError, ValueError):  # an empty file cannot be mapped
        return False


def is_same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether two paths lead to one file, or would if it existed.

    The system decides for files that exist: on macOS and Windows `A` is `a`, which no comparison of
    names can know.
    """
    try:
        return os.path.samefile(one, other)
    except OSError:  # one is not there, or the system cannot tell
        return os.path.realpath(one) == os.path.realpath(other)
    except ValueError:  # a null character, which is in the name of no file
        return False


def is_inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or below it; both are absolute and without links."""
    try:
        return os.path.commonpath((path, directory)) == directory
    except ValueError:  # another drive
        return False


def in_directory(output: str, name: str) -> str:
    """Return `output`, or the path of `name` in it if it is an existing directory."""
    return os.path.join(output, name) if is_directory(output) else output


def is_directory(output: str) -> bool:
    """Return whether `-o` names an existing directory, where kvtool chooses the file."""
    return output != "-" and os.path.isdir(output)


# Copying and linking data files without overwriting any.


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

    Each file is its location, relative to the model, and its source path. `check` is called before
    the first file is read; it raises if one must not be read.
    """
    missing = [
        (location, source)
        for location, source in files
        if os.path.realpath(source) != os.path.realpath(os.path.join(directory, location))
    ]
    if missing and how == "reference":
        raise UsageError(
            f"an output in `{directory}` cannot refer to the data file `{missing[0][1]}`: "
            "a location cannot leave the directory of its model",
            help="write beside the source, or use --external-data copy",
        )
    if missing:
        check()
        if not os.path.isdir(directory):
            raise UnwritableOutput(f"`{directory}` is not a directory", help="create it first")
    notes: list[str] = []
    with _undoing(is_done) as created:
        for location, source in missing:
            target = os.path.join(directory, location)
            if _is_there(source, target):
                notes.append(f"`{target}` is there already, with the data of the source")
                continue
            _make_parents(target, directory, created)
            (_link if how == "link" else _copy)(source, target)
            created.append(target)
            notes.append(f"{'linked' if how == 'link' else 'copied'} `{source}` to `{target}`")
        if then is not None:
            then()
    return notes


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
