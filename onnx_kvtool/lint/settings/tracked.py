"""Models that git tracks, read from the index of a repository.

git itself is not run: in the repository of a stranger its configuration names programs, and in
images of CI it is often missing, or refuses a checkout that somebody else owns.
"""

from __future__ import annotations

import contextlib
import os
import struct

__all__ = ["tracked_models"]

_HEADER = struct.Struct(">4sLL")  # signature, version, number of entries
_FLAGS = struct.Struct(">H")
_FIXED = 40  # bytes of an entry in front of its hash
_EXTENDED, _LENGTH = 0x4000, 0xFFF  # bits of its flags
_SUBMODULE = 0o160000
_MODES = frozenset({0o040000, 0o100644, 0o100755, 0o120000, _SUBMODULE})
_HASHES = (20, 32)  # bytes: SHA-1, SHA-256


def tracked_models(root: str, suffix: str) -> frozenset[str]:
    """Return the files with a suffix that git tracks, submodules, and the directories above them.

    Args:
        root: Absolute path of a directory that holds `.git`: a repository, a linked worktree or
            a submodule.
        suffix: How the names of the files end.

    Returns:
        Absolute paths; none where there is no index, or none that can be read.
    """
    found: set[str] = set()
    for name in _names(_git_directory(os.path.join(root, ".git"))):
        if not name.endswith((suffix, "/")):
            continue
        path = os.path.join(root, *name.rstrip("/").split("/"))
        while path not in found and path != root:
            found.add(path)
            path = os.path.dirname(path)
    return frozenset(found)


def _git_directory(place: str) -> str:
    """Return where the index lies, which a file `.git` names."""
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

    Args:
        data: Content of the index, as gitformat-index lays it down.
        size: Bytes of a hash.

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
    """Return the bytes of a file; none where it is none, or cannot be read."""
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    except OSError:
        pass
    return b""
