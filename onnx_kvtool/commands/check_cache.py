"""The cache of results of `kvtool check` between runs."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from onnx_kvtool.commands.check_settings import Settings
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import counted
from onnx_kvtool.lint.report import FileReport
from onnx_kvtool.model_io.atomic import stamp
from onnx_kvtool.model_io.stored import digest, file_digest

_FILE = "results.sqlite3"
_LAYOUT = 2
_SETTLED = 2 * 10**9  # nanoseconds: a file younger than that may change within one tick of a clock
_SMALL = 1 << 20  # bytes of a file beside the model that is read to see whether it has changed
_DAY = 24 * 60 * 60
_FORGOTTEN = 60 * _DAY  # seconds until an unused result is dropped
_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # from a message that quotes damaged content
_TABLES = """
CREATE TABLE IF NOT EXISTS results (
    path BLOB, request TEXT, used INTEGER, body TEXT, seal TEXT, PRIMARY KEY (path, request)
)
"""
_COLUMNS, _VALUES = "path, request, used, body, seal", ":path, :request, :used, :body, :seal"
_THIS = "WHERE path = :path AND request = :request"


class Kept:
    """The results in one directory; valid ones are reused.

    A result is valid for the same bytes at the same path, with the same data files (size and links;
    the content of those with a checksum), rules and sizes of dimensions, and with the same versions
    of kvtool, onnx, onnx_ir and Python. A file with the same inode, size and times (of content and
    of status) is not read. Several processes may use one directory.

    Each result is stored at once, so that an interrupted run can continue. Results that are not
    used for 60 days are dropped. Edited or damaged results are ignored, and a file that is no
    database of results is set aside.

    Args:
        directory: Made when it is not there.
        settings: The settings for every file.

    Raises:
        UsageError: If the directory cannot be made or written to.
    """

    def __init__(self, directory: str, settings: Settings) -> None:
        self._place = os.path.join(directory, _FILE)
        self._settings = settings
        self._version = _version()
        self._key = cache(self._made_key)
        self._now = int(time.time())
        try:
            os.makedirs(directory, exist_ok=True)
            ignore = os.path.join(directory, ".gitignore")
            if not os.path.exists(ignore):
                Path(ignore).write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"`{directory}` cannot store results: {error.strerror or error}",
                help="name another directory with `--cache-dir`",
            ) from error
        self._damaged = 0
        self._set_aside: str | None = None
        try:
            self._data = self._connected()
        except _ERRORS as error:
            self._data = self._made_anew(error)

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *error: object) -> None:
        self._do("DELETE FROM results WHERE used < :oldest", {"oldest": self._now - _FORGOTTEN})
        self._data.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about damaged results."""
        notes = []
        if self._set_aside is not None:
            notes.append(
                f"`{self._place}` was no database of results, or a damaged one: it is now "
                f"`{self._set_aside}`, and results are kept anew"
            )
        if self._damaged:
            what = counted(self._damaged, "result")
            notes.append(f"{what} in `{self._place}` had been edited or damaged: checked again")
        return tuple(notes)

    def has(self, path: str) -> bool:
        """Return whether the cache has a valid result for a file."""
        row = self._row(path)
        if row is None:
            return False
        now = stamp(path)
        if now is None:
            return False
        is_same = list(now) == row["stamp"] and max(now[2:]) + _SETTLED < row["written"]
        if not is_same and file_digest(path) != row["digest"]:
            return False
        if _beside(path, row["beside"]) != row["beside"]:
            return False
        if not is_same or row["used"] < self._now - _DAY:
            self._write(path, {**row, "stamp": now, "written": time.time_ns()})
        return True

    def get(self, path: str) -> FileReport | None:
        """Return the result of a file that `has` one; None if it is damaged."""
        row = self._row(path)
        try:
            report = FileReport.from_json(row["file"]) if row else None
        except UsageError:
            return None
        if row is None or report is None:
            return None
        return replace(report, dims=tuple(row["dims"]), is_kept=True)

    def keep(self, file: FileReport) -> None:
        """Keep the result of a file, unless the file could not be read or has changed since."""
        if file.is_read and file.failure is None and file.stamp is not None:
            content = file_digest(file.path)
            beside = _beside(file.path, [[name, deep, None] for name, deep in file.beside])
            if content is not None and stamp(file.path) == file.stamp:
                row = {
                    "stamp": file.stamp,
                    "written": time.time_ns(),
                    "digest": content,
                    "beside": beside,
                    "file": file.to_json(),
                    "dims": file.dims,
                }
                self._write(file.path, row)

    def _write(self, path: str, row: dict[str, Any]) -> None:
        key = self._key(path)
        body = json.dumps({name: value for name, value in row.items() if name != "used"})
        new = {**key, "used": self._now, "body": body, "seal": _seal(key, body.encode())}
        self._do(f"INSERT OR REPLACE INTO results ({_COLUMNS}) VALUES ({_VALUES})", new)

    def _row(self, path: str) -> dict[str, Any] | None:
        """Return the cached result of a file that is unchanged since it was written."""
        key = self._key(path)
        found = self._do(f"SELECT used, body, seal FROM results {_THIS}", key)
        if not found:
            return None
        ((used, body, seal),) = found
        is_sound = isinstance(used, int) and isinstance(body, bytes)
        if not is_sound or seal != _seal(key, body).encode():
            self._damaged += 1
            self._do(f"DELETE FROM results {_THIS}", key)
            return None
        row: dict[str, Any] = json.loads(body)
        return {**row, "used": used}

    def _connected(self) -> sqlite3.Connection:
        """Return a new database, or the existing one."""
        data = sqlite3.connect(self._place, timeout=60, isolation_level=None)
        try:
            data.text_factory = bytes  # text that is not UTF-8 is no error here
            # The system writes to the disk later: a crash of the machine may lose results, which
            # another check finds again.
            data.execute("PRAGMA journal_mode=WAL")
            data.execute("PRAGMA synchronous=NORMAL")
            ((layout,),) = data.execute("PRAGMA user_version")
            if layout not in (0, _LAYOUT):
                data.execute("DROP TABLE IF EXISTS results")
            data.execute(_TABLES)
            data.execute(f"SELECT {_COLUMNS} FROM results LIMIT 0")
            data.execute(f"PRAGMA user_version={_LAYOUT}")
        except BaseException:
            data.close()
            raise
        return data

    def _made_anew(self, error: Exception) -> sqlite3.Connection:
        """Set a damaged file aside, and return a new database.

        Raises:
            UsageError: If that is not what is wrong, or the system refuses.
        """
        if not _is_damage(error) or self._set_aside is not None:
            raise self._unusable(error) from error
        self._set_aside = f"{self._place}.damaged"
        try:
            os.replace(self._place, self._set_aside)
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self._place + suffix)
            return self._connected()
        except (OSError, *_ERRORS) as again:
            raise self._unusable(again) from again

    def _do(self, statement: str, values: dict[str, Any]) -> list[Any]:
        """Run a statement and return its rows; with a new database if this one is damaged."""
        try:
            return self._data.execute(statement, values).fetchall()
        except _ERRORS as error:
            if _is_damage(error):
                self._data.close()
            self._data = self._made_anew(error)
            return self._data.execute(statement, values).fetchall()

    def _unusable(self, error: Exception) -> UsageError:
        return UsageError(
            f"the results in `{self._place}` cannot be used: {error}",
            help="delete the file, or name another directory with `--cache-dir`",
        )

    def _made_key(self, path: str) -> dict[str, Any]:
        """Return the key of a result: path and request."""
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


def _is_damage(error: Exception) -> bool:
    """Return whether an error means a damaged file, not a locked or full one, ..."""
    if isinstance(error, sqlite3.OperationalError):
        return re.match("no such|use DROP|unsupported file format", str(error)) is not None
    return type(error) in (sqlite3.DatabaseError, sqlite3.DataError, UnicodeDecodeError)


def _seal(key: dict[str, Any], body: bytes) -> str:
    """Return the digest that reveals an edited result."""
    return digest([key["path"], b"\0", key["request"].encode(), body])


@cache
def _version() -> str:
    """Return a digest of everything that decides the findings, except the model."""
    import onnx_kvtool

    def pieces() -> Iterator[bytes]:
        yield platform.python_version().encode()
        for name in ("onnx", "onnx-ir", "numpy", "protobuf"):
            yield f"{name} {metadata.version(name)}\n".encode()
        root = Path(onnx_kvtool.__file__).parent
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".toml")):
            yield path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes()

    return digest(pieces())


def _beside(path: str, files: list[Any]) -> list[Any]:
    """Return the name, whether the content counts, and the state of files beside a model."""
    directory = _directory(path)
    return [[name, deep, _seen(os.path.join(directory, name), deep)] for name, deep, _ in files]


def _seen(path: str, deep: bool) -> list[Any] | None:
    """Return the state of a file that a check may see; None if it does not exist."""
    try:
        here, there = os.lstat(path), os.stat(path)
    except (OSError, ValueError):
        return [os.path.lexists(path)] if "\0" not in path else None
    real = os.path.relpath(os.path.realpath(path), os.path.realpath(os.path.dirname(path)))
    seen: list[Any] = [here.st_mode, there.st_mode, there.st_size, there.st_nlink, real]
    if deep:
        seen.append(file_digest(path) if there.st_size <= _SMALL else list(stamp(path) or ()))
    return seen


def _directory(path: str) -> str:
    return os.path.realpath(os.path.dirname(path) or os.curdir)
