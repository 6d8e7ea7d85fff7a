"""Results of `kvtool check` that are kept from one run to the next."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from onnx_kvtool.commands.check_settings import Settings
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.files.atomic import Stamp, stamp
from onnx_kvtool.core.files.digests import digest, file_pieces
from onnx_kvtool.lint.report import FileReport

__all__ = ["Kept"]

_FILE = "results.sqlite3"
_LAYOUT = 1
_SETTLED = 2 * 10**9  # nanoseconds: a file younger than that may change within one tick of a clock
_SMALL = 1 << 20  # bytes of a file beside the model that is read to see whether it has changed
_DAY = 24 * 60 * 60
_FORGOTTEN = 60 * _DAY  # seconds after which what nobody has asked for is dropped
_TABLES = """
CREATE TABLE IF NOT EXISTS results (
    path BLOB, request TEXT, stamp TEXT, written INTEGER, digest TEXT, beside TEXT, report TEXT,
    used INTEGER, PRIMARY KEY (path, request)
)
"""
_THIS = "WHERE path = :path AND request = :request"


class Kept:
    """The results in one directory, of which those that still hold are used again.

    A result holds for a file of the same bytes, at the same path, beside data files that look the
    same (size, links; what is compared with a checksum: content), under the same rules and sizes of
    dimensions, with the same versions of kvtool, onnx, onnx_ir and Python. A file whose inode, size
    and time have not changed is not read. Several processes may use one directory.

    Each result is in the directory as soon as it was kept, so that a run that is interrupted goes
    on where it was. What has not been asked for in 60 days is dropped.

    Args:
        directory: Made when it is not there.
        settings: What is asked of every file.

    Raises:
        UsageError: If the directory cannot be made or written to, or holds something else.
    """

    def __init__(self, directory: str, settings: Settings) -> None:
        self._place = os.path.join(directory, _FILE)
        self._settings = settings
        self._version = _version()
        self._keys: dict[str, dict[str, Any]] = {}  # of files that wait for `get` or `keep`
        self._now = int(time.time())
        try:
            os.makedirs(directory, exist_ok=True)
            ignore = os.path.join(directory, ".gitignore")
            if not os.path.exists(ignore):
                Path(ignore).write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"`{directory}` cannot hold results: {error.strerror or error}",
                help="name another directory with `--cache-dir`",
            ) from error
        with self._told():
            self._data = sqlite3.connect(self._place, timeout=60, isolation_level=None)
            # Written through by the system, not at once to the disk: a result that a crash of the
            # machine takes is found again by looking at the model.
            self._data.execute("PRAGMA journal_mode=WAL")
            self._data.execute("PRAGMA synchronous=NORMAL")
            ((layout,),) = self._data.execute("PRAGMA user_version")
            if layout not in (0, _LAYOUT):
                self._data.execute("DROP TABLE IF EXISTS results")
            self._data.execute(_TABLES)
            self._data.execute(f"PRAGMA user_version={_LAYOUT}")

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *error: object) -> None:
        with self._told():
            oldest = {"oldest": self._now - _FORGOTTEN}
            self._data.execute("DELETE FROM results WHERE used < :oldest", oldest)
            self._data.close()

    def has(self, path: str) -> bool:
        """Return whether there is a result that holds for a file as it is now."""
        row = self._row(path, "stamp, written, digest, beside, used")
        if row is None:
            return False
        known, written, content, beside, used = row
        now = stamp(path)
        if now is None:
            return False
        is_same = _text(now) == known and now[2] + _SETTLED < written
        if not is_same and _digest(path) != content:
            return False
        seen = json.loads(beside)
        if _beside(path, seen) != seen:
            return False
        if not is_same or used < self._now - _DAY:
            self._touch(path, now)
        return True

    def get(self, path: str) -> FileReport:
        """Return the result of a file that `has` one."""
        row = self._row(path, "report")
        assert row is not None
        del self._keys[path]
        kept = json.loads(row[0])
        report = FileReport.from_json(kept["file"])
        return replace(report, dims=tuple(kept["dims"]), is_kept=True)

    def keep(self, file: FileReport) -> None:
        """Keep the result of a file, if it is one that would come out again.

        That of a file that could not be read or has changed since it was read is not.
        """
        key = self._key(file.path)
        del self._keys[file.path]
        if not file.is_read or file.failure is not None or file.stamp is None:
            return
        content = _digest(file.path)
        beside = _beside(file.path, [[name, deep, None] for name, deep in file.beside])
        if stamp(file.path) != file.stamp:
            return
        kept = {"file": file.to_json(), "dims": file.dims}
        row = {
            **key,
            "stamp": _text(file.stamp),
            "written": time.time_ns(),
            "digest": content,
            "beside": json.dumps(beside),
            "report": json.dumps(kept),
            "used": self._now,
        }
        names = ", ".join(f":{name}" for name in row)
        with self._told():
            self._data.execute(f"INSERT OR REPLACE INTO results VALUES ({names})", row)

    def _touch(self, path: str, now: Stamp) -> None:
        new = {"stamp": _text(now), "written": time.time_ns(), "used": self._now}
        changes = "stamp = :stamp, written = :written, used = :used"
        with self._told():
            self._data.execute(f"UPDATE results SET {changes} {_THIS}", {**new, **self._key(path)})

    def _row(self, path: str, columns: str) -> tuple[Any, ...] | None:
        with self._told():
            rows = self._data.execute(f"SELECT {columns} FROM results {_THIS}", self._key(path))
            found: tuple[Any, ...] | None = rows.fetchone()
        return found

    def _key(self, path: str) -> dict[str, Any]:
        """Return what the result of a file is known by: its path, and what was asked.

        It is the same until the file was handed out or kept.
        """
        if path not in self._keys:
            self._keys[path] = self._made_key(path)
        return self._keys[path]

    def _made_key(self, path: str) -> dict[str, Any]:
        settings = self._settings
        known = settings.baseline.known(path) if settings.baseline else frozenset[str]()
        asked = {
            "version": self._version,
            "rules": [rule.code for rule in settings.selection.rules(path)],
            "targets": settings.targets,
            "dims": sorted(settings.dims.items()),
            "known": sorted(known),
            "link": os.path.relpath(os.path.realpath(path), _directory(path)),
        }
        text = json.dumps(asked).encode("utf-8", "surrogatepass")
        return {"path": os.fsencode(path), "request": digest([text])}

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise UsageError(
                f"the results in `{self._place}` cannot be used: {error}",
                help="delete the file, or name another directory with `--cache-dir`",
            ) from error


def _version() -> str:
    """Return a digest of all that decides what is found in a model, but for the model."""
    import onnx_kvtool

    def pieces() -> Iterator[bytes]:
        yield platform.python_version().encode()
        for name in ("onnx", "onnx-ir", "numpy", "protobuf"):
            yield f"{name} {metadata.version(name)}\n".encode()
        root = Path(onnx_kvtool.__file__).parent
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".toml")):
            yield path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes()

    return digest(pieces())


def _digest(path: str) -> str | None:
    """Return the digest of the bytes of a file; None where it cannot be read."""
    try:
        return digest(file_pieces(path))
    except OSError:
        return None


def _beside(path: str, files: list[Any]) -> list[Any]:
    """Return name, whether the content counts, and what is to be seen of files beside a model."""
    directory = _directory(path)
    return [[name, deep, _seen(os.path.join(directory, name), deep)] for name, deep, _ in files]


def _seen(path: str, deep: bool) -> list[Any] | None:
    """Return what a check may see of a file; None if it is not there."""
    try:
        here, there = os.lstat(path), os.stat(path)
    except (OSError, ValueError):
        return [os.path.lexists(path)] if "\0" not in path else None
    real = os.path.relpath(os.path.realpath(path), os.path.realpath(os.path.dirname(path)))
    seen: list[Any] = [here.st_mode, there.st_mode, there.st_size, there.st_nlink, real]
    if deep:
        seen.append(_digest(path) if there.st_size <= _SMALL else there.st_mtime_ns)
    return seen


def _directory(path: str) -> str:
    return os.path.realpath(os.path.dirname(path) or os.curdir)


def _text(known: Stamp) -> str:
    return " ".join(map(str, known))
