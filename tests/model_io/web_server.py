"""A server of files, as good or bad as it is told to be, that counts what it is asked for."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

__all__ = ["Server", "answering", "serving"]

Answer = Callable[[BaseHTTPRequestHandler], None]

_Any = TypeVar("_Any", bound=ThreadingHTTPServer)

_PIECE = 1 << 16


class Server(ThreadingHTTPServer):
    """Serves bytes or files by path, and counts what it is asked for.

    Attributes:
        files: What it has, by path, with or without its query.
        answers: What else it says, by path.
        ranges: Whether it knows ranges.
        delay: Seconds before each answer.
        breaks_at: Bytes after which it closes the connection; None for never.
        requests: How many bodies it was asked for.
        sent: How many bytes of bodies it has sent.
        seen: The paths that it was asked for.
    """

    ranges = True
    delay = 0.0
    breaks_at: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes | Path] = {}
        self.answers: dict[str, Answer] = {}
        self.requests = 0
        self.sent = 0
        self.seen: list[str] = []

    def url(self, path: str, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.server_address[1]}{path}"


def serving() -> contextlib.AbstractContextManager[Server]:
    """Give the block a server that answers."""
    return answering(Server())


@contextlib.contextmanager
def answering(server: _Any) -> Iterator[_Any]:
    """Let a server answer while the block runs."""
    with server:
        # Its end waits for the next look at whether it ends, which by itself is each half second.
        threading.Thread(target=server.serve_forever, args=[0.005], daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        server = self.server
        time.sleep(server.delay)
        path = self.path.partition("?")[0]
        server.seen.append(self.path)
        if path in server.answers:
            with contextlib.suppress(OSError):  # whoever asked has enough
                server.answers[path](self)
            return
        if path.startswith("/moved/"):
            self._head(302, 0, Location=path.removeprefix("/moved"))
            return
        data = server.files.get(self.path, server.files.get(path))
        if data is None:
            self._head(404, 0)
            return
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        start, end = 0, size
        asked = self.headers.get("Range")
        more = {"Accept-Ranges": "bytes"} if server.ranges else {}
        if asked and server.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(size, int(last) + 1 if last else size)
            if start >= size:
                self._head(416, 0)
                return
            more["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._head(206 if "Content-Range" in more else 200, end - start, **more)
        if body:
            server.requests += 1
            self._send(data, start, end)

    def _head(self, status: int, length: int, **more: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, data: bytes | Path, start: int, end: int) -> None:
        server = self.server
        if server.breaks_at is not None:
            end = min(end, start + server.breaks_at)
        with contextlib.suppress(OSError):  # whoever asked has enough
            for piece in _pieces(data, start, end):
                self.wfile.write(piece)
                server.sent += len(piece)
        if server.breaks_at is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


def _pieces(data: bytes | Path, start: int, end: int) -> Iterator[bytes]:
    if isinstance(data, bytes):
        for at in range(start, end, _PIECE):
            yield data[at : min(end, at + _PIECE)]
        return
    with data.open("rb") as file:
        file.seek(start, os.SEEK_SET)
        while start < end:
            piece = file.read(min(16 * _PIECE, end - start))
            yield piece
            start += len(piece)
