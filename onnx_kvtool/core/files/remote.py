"""Models at URLs, of which no more is fetched than is needed.

What a URL means, and how one gets there, is fsspec's business and that of its filesystems.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError

__all__ = ["RemoteFile", "beside", "find", "is_remote", "local_directory", "prefix", "shown"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
_LEAST, _MOST = 1 << 16, 1 << 24  # bytes of one request
_SUFFIX = ".onnx"
_CACHES = frozenset({"blockcache", "cached", "filecache", "simplecache"})
"""Links of a chain that have no path of their own: it is that of the next one."""


class _Directory(str):
    """A directory as it is shown, which knows its URL with credentials and query."""

    meant: str


def is_remote(source: str) -> bool:
    """Return whether a path is a URL, as `https://...`, `s3://...` or `zip://...::https://...`."""
    return _URL.match(source) is not None


def shown(source: str) -> str:
    """Return what may be said of a path: a URL without credentials, query and fragment."""
    return "::".join(map(_bare, source.split("::"))) if is_remote(source) else source


def _bare(url: str) -> str:
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url
    place = re.split(r"[?#]", rest)[0]
    host, slash, path = place.partition("/")
    return f"{scheme}{colon}{host.rpartition('@')[2]}{slash}{path}"


def _parts(source: str) -> tuple[list[str], str, str, list[str]]:
    """Return caches in front, the place of a file, its query and fragment, and what it lies in."""
    links = source.split("::")
    number = next((n for n, link in enumerate(links) if link not in _CACHES), 0)
    place = re.split(r"[?#]", links[number])[0]
    query = links[number].removeprefix(place)
    return links[:number], place, query, links[number + 1 :]


def prefix(source: str) -> str:
    """Return the directory of a URL, as it is shown, below which its external data lies."""
    caches, place, query, outer = _parts(source)
    directory = place[: place.rindex("/") + 1] if "/" in place else ""
    meant = "::".join((*caches, directory + query, *outer))
    found = _Directory(shown(meant))
    found.meant = meant
    return found


def local_directory(base: str) -> str | None:
    """Return the path of a `prefix` that is a directory of this machine; None elsewhere."""
    if not base.startswith(("file://", "local://")):
        return None
    from fsspec.implementations.local import LocalFileSystem

    return str(LocalFileSystem._strip_protocol(getattr(base, "meant", base)))


def beside(base: str, location: str) -> str:
    """Return the URL of a data file, which is relative to the `prefix` of a model."""
    caches, place, query, outer = _parts(getattr(base, "meant", base))
    name = quote(location) if place.startswith("http") else location
    return "::".join((*caches, f"{place}{name}{query}", *outer))


def find(source: str) -> list[str]:
    """Return the models that a URL means: itself, or those below it if it is a directory.

    Raises:
        UsageError: If its filesystem is not installed.
        UnreadableModel: If it cannot be reached.
    """
    caches, place, _, outer = _parts(source)
    if place.endswith(_SUFFIX) and "*" not in place:
        return [source]
    name = f"`{shown(source)}`"
    with _reaching(name):
        fs, path = _filesystem(source, name)
        if "*" in path:
            found = fs.glob(path)
        elif fs.isdir(path):
            found = fs.find(path)
        else:
            return [source]
        models = (str(fs.unstrip_protocol(one)) for one in sorted(found) if one.endswith(_SUFFIX))
        return ["::".join((*caches, model, *outer)) for model in models]


class RemoteFile:
    """A file at a URL, read from front to back, or in any order where its server has ranges.

    Args:
        source: The URL, with credentials.

    Attributes:
        name: What messages call it.

    Raises:
        UsageError: If its filesystem is not installed.
        UnreadableModel: From every method, if it cannot be reached or ends early.
    """

    def __init__(self, source: str) -> None:
        self.name = f"`{shown(source)}`"
        with _reaching(self.name):
            self._fs, self._path = _filesystem(source, self.name)
            self._file: Any = self._fs.open(self._path, "rb", cache_type="none")
            self.size: int | None = getattr(self._file, "size", None)
        self._in_ranges = self.size is not None
        self._held = b""
        self._start = 0  # where what is held begins
        self._next = _LEAST

    def close(self) -> None:
        """Let go of the connection."""
        with contextlib.suppress(Exception):  # nothing more is wanted of it
            self._file.close()

    def read(self, position: int, count: int) -> bytes:
        """Return bytes; fewer than `count` where the file ends.

        What lies in front of `position` is forgotten where the server has no ranges.
        """
        offset = position - self._start
        if not 0 <= offset <= len(self._held):
            self._skip(position)
            offset = 0
        while len(self._held) - offset < count:
            piece = self._fetch(max(self._next, count - (len(self._held) - offset)))
            if not piece:
                break
            self._next = min(2 * self._next, _MOST)
            self._held = self._held[offset:] + piece
            self._start += offset
            offset = 0
        return self._held[offset : offset + count]

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of a range, some MiB at a time.

        Raises:
            UnreadableModel: If the file ends before `end`.
        """
        while start < end:
            piece = self.read(start, min(_MOST >> 2, end - start))
            if not piece:
                raise UnreadableModel(
                    f"{self.name} ends at byte {start:,}, and {end:,} are needed",
                    help="copy the file to its place again",
                )
            yield piece
            start += len(piece)

    def _fetch(self, count: int) -> bytes:
        at = self._start + len(self._held)
        if self.size is not None:
            count = min(count, self.size - at)
        if count <= 0:
            return b""
        with _reaching(self.name):
            if self._in_ranges:
                try:
                    self._file.seek(at)
                    return bytes(self._file.read(count))
                except ValueError:  # what fsspec says of a server that has no ranges
                    self._in_ranges = False
                    self._restart(at)
            return bytes(self._file.read(count))

    def _skip(self, position: int) -> None:
        """Hold nothing, and go to a position."""
        at = self._start + len(self._held)
        self._held, self._next = b"", _LEAST
        if self._in_ranges:
            self._start = position
            return
        with _reaching(self.name):
            if position < at:
                self._restart(position)
                return
            self._start = at
            self._pass_over(position)

    def _restart(self, position: int) -> None:
        self._file = self._fs.open(self._path, "rb", block_size=0)
        self._held, self._start = b"", 0
        self._pass_over(position)

    def _pass_over(self, position: int) -> None:
        while self._start < position:
            piece = self._file.read(min(_MOST, position - self._start))
            if not piece:
                break
            self._start += len(piece)


def _filesystem(source: str, name: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError(
            f"{name} needs the package `fsspec`, which is not installed",
            help="`pip install 'onnx-kvtool[remote]'`",
        ) from error
    try:
        fs, path = url_to_fs(source)
    except ImportError as error:
        raise UsageError(
            f"{name} needs the package of its filesystem: {error}",
            help="install it beside kvtool",
        ) from error
    except ValueError as error:
        if "rotocol" not in str(error):
            raise
        raise UsageError(f"{name} is a URL that fsspec does not know") from error
    return fs, path


@contextlib.contextmanager
def _reaching(name: str) -> Iterator[None]:
    """Say of what fails in the block that a URL cannot be read, and nothing that is secret.

    Filesystems raise errors of the libraries that they use, with the URL in them.
    """
    try:
        yield
    except KvtoolError:
        raise
    except FileNotFoundError:
        raise UnreadableModel(f"{name} does not exist") from None
    except Exception as error:  # noqa: BLE001 - they have no base class in common
        status = getattr(error, "status", None)
        what = type(error).__name__ + (f" {status}" if isinstance(status, int) else "")
        raise UnreadableModel(
            f"{name} cannot be read: {what}", help="see whether it can be fetched at all"
        ) from None
