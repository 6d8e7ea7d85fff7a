"""The files of a check: patterns, ignore files, and files that git tracks."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import struct
from collections.abc import Iterator, Sequence

from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.lint.settings.config import PathPatterns, is_pattern, relative_path
from onnx_kvtool.model_io.atomic import is_pipe, patient
from onnx_kvtool.model_io.remote import find, is_remote

# Models that git tracks, read from the index of a repository.
#
# kvtool does not run git: the configuration of a repository may name programs, and in images of CI
# git is often missing, or refuses a checkout that another user owns.


_HEADER = struct.Struct(">4sLL")  # signature, version, number of entries
_FLAGS = struct.Struct(">H")
_FIXED = 40  # bytes of an entry in front of its hash
_EXTENDED, _LENGTH = 0x4000, 0xFFF  # bits of its flags
_SUBMODULE = 0o160000
_MODES = frozenset({0o040000, 0o100644, 0o100755, 0o120000, _SUBMODULE})
_HASHES = (20, 32)  # bytes: SHA-1, SHA-256


def _tracked(root: str) -> frozenset[str]:
    """Return the models that git tracks, submodules, and the directories above them.

    `root` holds `.git`: it is a repository, a linked worktree or a submodule. All paths are
    absolute. If there is no index, or none that can be read, there are none.
    """
    found: set[str] = set()
    for name in _names(_git_directory(os.path.join(root, ".git"))):
        if not name.endswith((_SUFFIX, "/")):
            continue
        path = os.path.join(root, *name.rstrip("/").split("/"))
        while path not in found and path != root:
            found.add(path)
            path = os.path.dirname(path)
    return frozenset(found)


def _git_directory(place: str) -> str:
    """Return the git directory, which may be named by a file `.git`."""
    if not os.path.isfile(place):
        return place
    text = _content(place).decode("utf-8", "surrogateescape")
    named = text.removeprefix("gitdir:").strip()
    return os.path.join(os.path.dirname(place), named)


def _names(directory: str) -> list[str]:
    """Return the names in an index, and in the one that a split index shares."""
    data = _content(os.path.join(directory, "index"))
    for size in _HASHES:
        with contextlib.suppress(LookupError, ValueError, struct.error):  # another kind of index
            names, end = _entries(data, size)
            if data[end : end + 4] == b"link":
                shared = f"sharedindex.{data[end + 8 : end + 8 + size].hex()}"
                names += _entries(_content(os.path.join(directory, shared)), size)[0]
            return names
    return []


def _entries(data: bytes, size: int) -> tuple[list[str], int]:
    """Return the names of the entries of an index, and where they end; `/` ends a submodule's.

    Raises:
        ValueError: If the bytes are no index with such hashes.
        LookupError: Likewise.
        struct.error: Likewise.
    """
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    position, name = _HEADER.size, b""
    names = []
    for _ in range(count):
        start = position
        mode = int.from_bytes(data[start + 24 : start + 28], "big")
        if mode not in _MODES:
            raise ValueError("no entry")
        (flags,) = _FLAGS.unpack_from(data, start + _FIXED + size)
        position = start + _FIXED + size + (4 if flags & _EXTENDED else 2)
        kept = b""
        if version == 4:
            dropped, position = _offset(data, position)
            kept = name[: len(name) - dropped]
        end = data.index(b"\0", position)
        name = kept + data[position:end]
        if flags & _LENGTH != min(len(name), _LENGTH):
            raise ValueError("hashes of another size")
        names.append(os.fsdecode(name) + ("/" if mode == _SUBMODULE else ""))
        position = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
    return names, position


def _offset(data: bytes, position: int) -> tuple[int, int]:
    """Return a number in the form of packfile offsets, and where it ends."""
    value = -1
    while True:
        byte = data[position]
        position += 1
        value = (value + 1) << 7 | byte & 0x7F
        if byte < 0x80:
            return value, position


def _content(path: str) -> bytes:
    """Return the bytes of a file; empty if it is no file, or cannot be read."""
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    except OSError:
        pass
    return b""


# The files that a list of paths selects: files, directories, globs, standard input.


_SUFFIX = ".onnx"
_GIT = ".git"
_SKIPPED = frozenset({_GIT, ".hg", ".svn"})


def find_models(paths: Sequence[str]) -> list[str]:
    """Return the model files that `paths` mean, each once, in a stable order.

    The order is that of `paths`; within a directory or a glob, that of the names. A named file is
    returned whatever its suffix and whether or not it exists. A directory means the files `*.onnx`
    in and below it, except those that git does not track and a `.gitignore` excludes (in, below or
    above the directory, up to the root of the repository). Links to directories are not followed.

    Args:
        paths: Files, directories, globs (`**` for any depth), or `-`; empty for the current one.

    Raises:
        UnreadableModel: If a glob matches no file.
        UsageError: If `-` is given twice.
    """
    if list(paths).count("-") > 1:
        raise UsageError("standard input contains one model, and `-` is given twice")
    found: dict[str, None] = {}
    for path in paths or (os.curdir,):
        found.update(dict.fromkeys(_expand(path)))
    return list(found)


def _expand(path: str) -> Iterator[str]:
    if path == "-":
        yield path
    elif is_remote(path):
        yield from find(path)
    elif os.path.isdir(path):
        above, tracked = _enclosing(path)
        # Like a file, a directory that is named is meant, whatever excludes it.
        ignores = [] if _is_ignored(path, True, above) else above
        yield from _walk(os.path.normpath(path), ignores, tracked)
    elif glob.has_magic(path) and not os.path.lexists(path):
        matched = sorted(p for p in glob.glob(path, recursive=True) if not is_pipe(p))
        if not matched:
            raise UnreadableModel(f"`{path}` matches no file")
        for one in matched:
            yield from _expand(one)
    else:
        yield path


def _walk(
    directory: str,
    ignores: list[PathPatterns],
    tracked: frozenset[str],
    is_excluded: bool = False,
) -> Iterator[str]:
    """Yield the models in and below `directory` that are tracked, or not excluded.

    `ignores` has the patterns of the files `.gitignore` above the directory. If that is excluded
    itself, only tracked models count.
    """
    own = _read_ignore(directory)
    ignores = [*ignores, own] if own else ignores
    try:
        with os.scandir(directory) as entries:
            lines = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UnreadableModel(f"`{directory}` cannot be read: {error.strerror or error}") from error
    if any(entry.name == _GIT for entry in lines):
        tracked |= _tracked(os.path.abspath(directory))
    for entry in lines:
        path = entry.name if directory == os.curdir else os.path.join(directory, entry.name)
        is_directory = entry.is_dir(follow_symlinks=False)
        if not (is_directory or entry.name.endswith(_SUFFIX)) or entry.name in _SKIPPED:
            continue
        is_out = is_excluded or _is_ignored(path, is_directory, ignores)
        if is_out and os.path.abspath(path) not in tracked:
            continue
        if is_directory:
            yield from _walk(path, ignores, tracked, is_out)
        elif entry.is_file() or (entry.is_symlink() and not os.path.exists(path)):
            yield path  # a broken link is a model that cannot be read


def _is_ignored(path: str, is_directory: bool, ignores: list[PathPatterns]) -> bool:
    """Return the verdict of the innermost `.gitignore` that matches a path."""
    for patterns in reversed(ignores):
        verdict = patterns.verdict(path, is_directory=is_directory)
        if verdict is not None:
            return verdict
    return False


def _enclosing(directory: str) -> tuple[list[PathPatterns], frozenset[str]]:
    """Return the `.gitignore` files above a directory, down from the root of its repository.

    Also return the models that the repository tracks, unless the directory is its root: there
    `_walk` finds them.
    """
    found: list[PathPatterns] = []
    start = here = os.path.abspath(directory)
    while not os.path.exists(os.path.join(here, _GIT)):
        parent = os.path.dirname(here)
        if parent == here:
            # Outside a repository, a `.gitignore` above does not apply.
            return [], frozenset()
        here = parent
        if own := _read_ignore(here):
            found.append(own)
    return found[::-1], frozenset() if here == start else _tracked(here)


def _read_ignore(directory: str) -> PathPatterns | None:
    path = os.path.join(directory, ".gitignore")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=patient) as file:
            lines = file.read().splitlines()
            base = os.path.abspath(directory)
            # git passes over a line that is no pattern, such as `!\\`.
            return PathPatterns([line for line in lines if is_pattern(line)], base)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableModel(f"`{path}` cannot be read: {error.strerror or error}") from error


def parse_shard(text: str) -> tuple[int, int]:
    """Return the part and the number of parts that `i/n` names, counted from 1.

    Raises:
        UsageError: If it is not of that form, or `i` is not 1 to `n`.
    """
    part, slash, count = text.partition("/")
    digits = part.isascii() and part.isdigit() and count.isascii() and count.isdigit()
    if not (slash and digits and 1 <= int(part) <= int(count)):
        raise UsageError(
            f"`--shard` is `{text}`, expected `i/n` with i from 1 to n", help="write `--shard 1/4`"
        )
    return int(part), int(count)


def take_shard(files: Sequence[str], shard: tuple[int, int]) -> list[str]:
    """Return the files of one of `n` parts; together the parts hold each file once.

    The part of a file depends only on its path relative to the current directory. A new or removed
    file moves no other file, so each part finds its own results in a cache. With many files, the
    parts have about the same size.
    """
    part, count = shard
    return [file for file in files if _part(file, count) == part]


def _part(file: str, count: int) -> int:
    """Return the part of a file, counted from 1."""
    place = relative_path(file) or file.replace(os.sep, "/")
    name = place.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") % count + 1
