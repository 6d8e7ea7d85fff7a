"""Digests of files and of what comes in pieces."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator

__all__ = ["digest", "file_digest", "file_pieces"]

_PIECE = 1 << 20


def digest(pieces: Iterable[bytes | memoryview], algorithm: str = "sha256") -> str:
    """Return the digest of all pieces together, in hexadecimal.

    It tells one content from another, and is no proof against somebody who wants two to be alike
    unless the algorithm is.
    """
    found = hashlib.new(algorithm, usedforsecurity=False)
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str | None:
    """Return the digest of the bytes of a file; None where it cannot be read.

    A device or a pipe may have no end, and is not read.
    """
    try:
        return digest(file_pieces(path)) if os.path.isfile(path) else None
    except OSError:
        return None


def file_pieces(
    path: str | os.PathLike[str], start: int = 0, size: int = _PIECE
) -> Iterator[bytes]:
    """Yield the bytes of a file from `start` on, `size` at a time but for the last.

    Raises:
        OSError: If it cannot be read.
    """
    with open(path, "rb") as file:
        file.seek(start)
        while piece := file.read(size):
            yield piece
