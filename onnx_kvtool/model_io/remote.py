"""Models at URLs; kvtool only fetches the bytes that it needs.

fsspec and its filesystems decide what a URL means and how to reach it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
_LEAST, _MOST = 1 << 16, 1 << 24  # bytes of one request
_WHOLE = 1 << 27  # bytes of an answer that is kept as a whole
_COPIED = 1 << 31  # bytes that a cache copies of an answer whose length nobody announces
_SUFFIX = ".onnx"
_BLOCKS = frozenset({"blockcache", "cached"})
_CACHES = frozenset({"filecache", "simplecache"}) | _BLOCKS
"""Links of a chain without a path of their own: they use that of the next link."""


_requests: ContextVar[tuple[float | None, list[str]]] = ContextVar("requests", default=(None, []))


@contextlib.contextmanager
def requests(timeout: float | None) -> Iterator[list[str]]:
    """Bound what the requests of the block may take, and yield the notes on them.

    Args:
        timeout: Seconds that each request to a web server may take, from the connection to the
            last byte; None for five minutes, as aiohttp has it.

    Raises:
        UsageError: If `timeout` is not above 0.
    """
    if timeout is not None and not timeout > 0:
        raise UsageError(f"`--timeout` is {timeout}, expected a number of seconds above 0")
    notes: list[str] = []
    token = _requests.set((timeout, notes))
    try:
        yield notes
    finally:
        _requests.reset(token)


class _Directory(str):
    """A directory for messages, which knows its URL with credentials and query."""

    meant: str


def is_remote(source: str) -> bool:
    """Return whether a path is a URL, as `https://...`, `s3://...` or `zip://...::https://...`."""
    return _URL.match(source) is not None


def shown(source: str) -> str:
    """Return a path for messages: a URL without credentials, query and fragment."""
    return "::".join(map(_bare, source.split("::"))) if is_remote(source) else source


def _bare(url: str) -> str:
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url
    place = re.split(r"[?#]", rest)[0]
    host, slash, path = place.partition("/")
    return f"{scheme}{colon}{host.rpartition('@')[2]}{slash}{path}"


def _parts(source: str) -> tuple[list[str], str, str, list[str]]:
    """Return the caches in front, the place of a file, its query, and the links around it."""
    links = source.split("::")
    number = next((n for n, link in enumerate(links) if link not in _CACHES), 0)
    place = re.split(r"[?#]", links[number])[0]
    query = links[number].removeprefix(place)
    return links[:number], place, query, links[number + 1 :]


def prefix(source: str) -> str:
    """Return the directory of a URL, for messages; its external data lies below it."""
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
    """A file at a URL, read from front to back, or in any order if its server supports ranges.

    Args:
        source: The URL, with credentials.

    Attributes:
        name: What messages call it.
        size: Its bytes as its server announces them, once something was read; None if it does not.
            No more are read.

    Raises:
        UsageError: If its filesystem is not installed.
        UnreadableModel: From every method, if it cannot be reached or ends early.
    """

    def __init__(self, source: str) -> None:
        self.name = f"`{shown(source)}`"
        self._buffer = b""
        self._start = 0  # where what is held begins
        self._next = _LEAST
        self._at = 0  # what the file gives next
        self._in_ranges = True
        self.size: int | None = None
        with _reaching(self.name):
            self._fs, self._path = _filesystem(source, self.name)
            self._is_web = source.startswith(("http://", "https://"))
            self._file: Any = None
            if not self._is_web:
                self._file = self._opened(source)
                self.size = getattr(self._file, "size", None)

    def _opened(self, source: str) -> Any:
        cache, _, cached = source.partition("::")
        try:
            # A cache of blocks hands on a choice of its own.
            given = {} if cache in _BLOCKS else {"cache_type": "none"}
            return self._fs.open(self._path, "rb", **given)
        except Exception as error:
            _forget(source)
            if cache in _CACHES and isinstance(error, FileNotFoundError):
                RemoteFile(cached).read(0, 1)  # the cache says so whatever is wrong
            raise

    def close(self) -> None:
        """Let go of the connection."""
        with contextlib.suppress(Exception):  # nothing more is wanted of it
            self._file.close()

    def read(self, position: int, count: int) -> bytes:
        """Return bytes; fewer than `count` where the file ends.

        Bytes before `position` are dropped.
        """
        offset = position - self._start
        if not 0 <= offset <= len(self._buffer):
            self._buffer, self._start, self._next = b"", position, _LEAST
            offset = 0
        while len(self._buffer) - offset < count:
            missing = count - (len(self._buffer) - offset)
            piece = self._fetch(self._start + len(self._buffer), max(self._next, missing))
            if not piece:
                break
            self._next = min(2 * self._next, _MOST)
            self._buffer = self._buffer[offset:] + piece
            self._start += offset
            offset = 0
        return self._buffer[offset : offset + count]

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
                    help="upload the file again",
                )
            yield piece
            start += len(piece)

    def _fetch(self, at: int, count: int) -> bytes:
        """Return up to `count` bytes from a position on; none at the end of the file."""
        if (count := self._within(at, count)) <= 0:
            return b""
        with _reaching(self.name):
            if not self._is_web:
                self._file.seek(at)
                return bytes(self._file.read(count))
            if self._in_ranges or at < self._at:
                self._ask(at, count)
            while self._at < at and self._take(min(_MOST, at - self._at)):
                pass
            return self._take(self._within(at, count))

    def _within(self, at: int, count: int) -> int:
        """Return how many of `count` bytes lie before the end, as far as that is known."""
        return count if self.size is None else min(count, self.size - at)

    def _take(self, count: int) -> bytes:
        pieces = []
        while count > 0 and (piece := self._file.read(count)):
            pieces.append(piece)
            count -= len(piece)
            self._at += len(piece)
        return b"".join(pieces)

    def _ask(self, at: int, count: int) -> None:
        """Ask a web server for some bytes; one without ranges sends the file from its start."""
        self.close()
        headers = {**self._fs.kwargs.get("headers", {}), "Range": f"bytes={at}-{at + count - 1}"}
        # Not as fsspec does it, which reads the whole of an answer, however long it is.
        try:
            self._file = self._fs.open(self._path, "rb", block_size=0, size=1, headers=headers)
        except Exception as error:
            if getattr(error, "status", None) != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            self._file, self._at = io.BytesIO(), at  # behind the end
            return
        answer = self._file.r
        is_plain = answer.headers.get("Content-Encoding", "identity") == "identity"
        if answer.status == HTTPStatus.PARTIAL_CONTENT:
            found = re.match(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != at or not is_plain:
                raise UnreadableModel(f"{self.name}: its server sends other bytes than requested")
            self._at, self.size = at, int(found[2])
        elif answer.status == HTTPStatus.OK:
            length = answer.headers.get("Content-Length", "")
            self._at, self._in_ranges = 0, False
            self.size = int(length) if is_plain and length.isdecimal() else None
        else:
            raise _refused(self.name, answer.status)


def _filesystem(source: str, name: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError(
            f"{name} needs the package `fsspec`, which is not installed",
            help="`pip install 'onnx-kvtool[remote]'`",
        ) from error
    links = source.split("::")
    most = None if _CACHES.isdisjoint(links) else _COPIED
    client = {"get_client": functools.partial(_client, _requests.get()[0], most)}
    schemes = {url.partition("://")[0] for url in links} & {"http", "https"}
    try:
        fs, path = url_to_fs(source, **dict.fromkeys(schemes, client))
    except ImportError as error:
        raise UsageError(
            f"{name} needs the package of its filesystem: {error}",
            help="install it beside kvtool",
        ) from error
    except ValueError as error:
        if "rotocol" not in str(error):
            raise
        raise UsageError(f"{name} is a URL of a kind that fsspec does not support") from error
    except Exception:
        _forget(source)
        raise
    return fs, path


def _forget(source: str) -> None:
    """Remove what the caches of a chain copied: a part of a file, which they take for the whole."""
    from fsspec import get_filesystem_class

    links = source.split("::")
    for cache, cached in itertools.pairwise(links):
        if cache not in _CACHES:
            continue
        for fs in tuple(get_filesystem_class(cache)._cache.values()):
            with contextlib.suppress(Exception):  # it holds nothing of this file
                os.unlink(os.path.join(fs.storage[-1], fs._mapper(fs._strip_protocol(cached))))


class _Bounded:
    """The body of an answer, read up to a number of bytes."""

    def __init__(self, body: Any, name: str, most: int) -> None:
        self._body, self._name, self._most, self._left = body, name, most, most

    async def read(self, count: int = -1) -> bytes:
        piece: bytes = await self._body.read(count)
        self._left -= len(piece)
        if self._left < 0:
            raise UnreadableModel(
                f"`{self._name}` sends more than {self._most >> 20} MiB, which are to be copied, "
                "and its server does not say how many there are",
                help="download it, and name the file",
            )
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


async def _client(timeout: float | None, most: int | None, **given: Any) -> Any:
    """Return the client of fsspec for web servers; `most` bounds a body of unknown length."""
    import aiohttp

    class Answer(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> Any:
            """Read the headers."""
            found = await super().start(connection)
            is_packed = self.headers.get("Content-Encoding", "identity") != "identity"
            if most is not None and (is_packed or "Content-Length" not in self.headers):
                name = shown(str(self.url))
                self.content = cast(aiohttp.StreamReader, _Bounded(self.content, name, most))
            return found

        async def read(self) -> bytes:
            """Read the whole of an answer, as fsspec does for archives and lists of files."""
            if self._body is None:
                body = bytearray()
                async for piece in self.content.iter_chunked(_LEAST):
                    body += piece
                    if len(body) > _WHOLE:
                        self.close()
                        raise UnreadableModel(
                            f"`{shown(str(self.url))}` sends more than {_WHOLE >> 20} MiB at once"
                        )
                self._body = bytes(body)
            return self._body

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_note_redirect)
    headers = {"Accept-Encoding": "identity", **given.pop("headers", {})}
    if timeout is not None:
        given["timeout"] = aiohttp.ClientTimeout(total=timeout)
    return aiohttp.ClientSession(
        trace_configs=[trace], headers=headers, response_class=Answer, **given
    )


async def _note_redirect(session: Any, context: Any, asked: Any) -> None:
    """Note that a server redirects to another one."""
    place = asked.url.join(type(asked.url)(asked.response.headers.get("Location", "")))
    notes = _requests.get()[1]
    note = f"`{shown(str(asked.url))}` redirects to another server, `{shown(str(place.origin()))}`"
    if (place.host, place.port) != (asked.url.host, asked.url.port) and note not in notes:
        notes.append(note)


@contextlib.contextmanager
def _reaching(name: str) -> Iterator[None]:
    """Report any failure in the block as an unreadable URL, without secrets.

    Filesystems raise errors of the libraries that they use, with the URL in them.
    """
    try:
        yield
    except KvtoolError:
        raise
    except Exception as error:  # noqa: BLE001 - they have no base class in common
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> UnreadableModel:
    """Return the error for an exception of a filesystem, which may hide the cause behind others."""
    import asyncio

    cause: BaseException | None = error
    while cause is not None:
        status = getattr(cause, "status", None)
        if isinstance(status, int):
            return _refused(name, status)
        if isinstance(cause, TimeoutError | asyncio.TimeoutError):
            return UnreadableModel(
                f"{name} cannot be read: a request to it took too long",
                help="allow more with `--timeout SECONDS`",
            )
        if isinstance(cause, OSError) and cause.strerror and cause.errno != errno.ENOENT:
            return UnreadableModel(f"{name} cannot be read: {cause.strerror}", help=_SEE)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, FileNotFoundError):
        return UnreadableModel(f"{name} does not exist")
    if isinstance(error, ValueError) and re.search(r"\b(seek|range)", str(error)):
        return UnreadableModel(
            f"{name} cannot be read: its server sends no ranges, which an archive is read by",
            help="copy the archive first: put `simplecache::` in front of its URL",
        )
    blocks = not _BLOCKS.isdisjoint(name.strip("`").split("::"))
    if blocks and isinstance(error, TypeError) and "NoneType" in str(error):
        return UnreadableModel(
            f"{name} cannot be read: its server does not announce its length, which `cached::` and "
            "`blockcache::` need",
            help="copy the whole of it: `simplecache::` in place of `blockcache::` or `cached::`",
        )
    return UnreadableModel(f"{name} cannot be read: {type(error).__name__}", help=_SEE)


def _refused(name: str, status: int) -> UnreadableModel:
    """Return the error for the status of a web server."""
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return UnreadableModel(f"{name} does not exist")
    if status == 0:  # of aiohttp, which has given up
        what = "redirects without end"
    else:
        known = status in set(HTTPStatus)
        what = f"answers HTTP {status}" + (f" {HTTPStatus(status).phrase}" if known else "")
    help = _HELP.get(status, "try again later" if status >= 500 else _SEE)
    return UnreadableModel(f"{name} cannot be read: its server {what}", help=help)


_SEE = "see whether it can be fetched at all"
_CREDENTIALS = "give the credentials that it wants, in the URL or in the configuration of fsspec"
_HELP: dict[int, str] = dict.fromkeys((401, 403), _CREDENTIALS)
