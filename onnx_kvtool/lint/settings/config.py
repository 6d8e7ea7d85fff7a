"""Configuration: `[tool.kvtool]` in pyproject.toml, or kvtool.toml."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx_kvtool.core.choices import CheckFormat, Severity, words
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.table import Table
from onnx_kvtool.core.words import did_you_mean, missing_file_help
from onnx_kvtool.model_io.source import patient

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FORMATS", "KEYS", "LEVELS", "Config", "discover", "load"]

LEVELS = words(Severity)
FORMATS = words(CheckFormat)

_NAMES = ("kvtool.toml", "pyproject.toml")
# Flags that say what one run is for, and would be odd as the habit of a project.
_FLAGS_ONLY = (
    "config",
    "dask",
    "diff",
    "isolated",
    "output",
    "prune-baseline",
    "quiet",
    "shard",
    "verbose",
    "write-baseline",
)


@dataclass(frozen=True, slots=True)
class Config:
    """What a configuration file says.

    Attributes:
        path: The file; None for no file.
        values: Its keys and their values, in the form of the flags.
    """

    path: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """Absolute directory to which paths and patterns in it are relative."""
        return os.getcwd() if self.path is None else os.path.dirname(os.path.abspath(self.path))


class _Unfit(KvtoolError):
    """A value that a key cannot have; the message says what is expected."""


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise _Unfit("a list of strings")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _Unfit("a string")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unfit("true or false")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise _Unfit("a positive integer")
    return value


def _one_of(words: Sequence[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            expected = ", ".join(f"`{word}`" for word in words[:-1]) + f" or `{words[-1]}`"
            raise _Unfit(expected, help=did_you_mean(str(value), words))
        return str(value)

    return read


def _dims(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(
        type(number) is int and number > 0 for number in value.values()
    ):
        raise _Unfit("a table of positive integers")
    return dict(value)


def _per_file(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise _Unfit("a table from patterns to lists of codes")
    return {pattern: _texts(codes) for pattern, codes in value.items()}


KEYS: Table[str, Callable[[Any], Any]] = Table(
    "configuration key",
    [
        ("select", _texts),
        ("ignore", _texts),
        ("extend-select", _texts),
        ("per-file-ignores", _per_file),
        ("target", _texts),
        ("format", _one_of(FORMATS)),
        ("fix", _truth),
        ("unsafe-fixes", _truth),
        ("baseline", _text),
        ("fail-on", _one_of(LEVELS)),
        ("exit-zero", _truth),
        ("statistics", _truth),
        ("jobs", _count),
        ("cache-dir", _text),
        ("dim", _dims),
    ],
)
"""The keys, which are the names of the flags, and what reads the value of each."""


def discover(paths: Sequence[str]) -> Config:
    """Return the configuration that is nearest to some paths.

    The directory that holds all of them is looked at, and then those above it: for a kvtool.toml,
    else for a pyproject.toml with a table `[tool.kvtool]`. Without paths, and for standard input,
    it is the current directory.

    Raises:
        UsageError: As `load`.
    """
    directory = _common(paths)
    while True:
        for name in _NAMES:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                table = _table(path)
                if table is not None:
                    return Config(path, _read(path, table))
        parent = os.path.dirname(directory)
        if parent == directory:
            return Config()
        directory = parent


def load(path: str) -> Config:
    """Return what a configuration file says.

    Args:
        path: A pyproject.toml, which must have a table `[tool.kvtool]`, or any other TOML file,
            whose keys stand at its top.

    Raises:
        UsageError: If the file cannot be read or is no TOML, or has a key that is not known or a
            value that does not fit.
    """
    table = _table(path)
    if table is None:
        raise UsageError(f"`{path}` has no table `[tool.kvtool]`")
    return Config(path, _read(path, table))


def _common(paths: Sequence[str]) -> str:
    directories = []
    for path in paths:
        if path == "-":
            continue
        place = os.path.abspath(path)
        directories.append(place if os.path.isdir(place) else os.path.dirname(place))
    if not directories:
        return os.getcwd()
    try:
        return os.path.commonpath(directories)
    except ValueError:  # on different drives
        return os.getcwd()


def _table(path: str) -> Mapping[str, Any] | None:
    """Return the settings in a file; None for a pyproject.toml without any."""
    try:
        with open(path, "rb", opener=patient) as file:
            data = tomllib.load(file)
    except FileNotFoundError as error:
        raise UsageError(
            f"`{path}` does not exist", help=missing_file_help(path, ".toml")
        ) from error
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except RecursionError as error:
        raise UsageError(f"`{path}` is nested too deeply to be read") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"`{path}` is no TOML: {error}") from error
    if os.path.basename(path) != "pyproject.toml":
        return data
    tool = data.get("tool")
    table = tool.get("kvtool") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"`{path}`: `tool.kvtool` is {table!r}, expected a table")
    return table


def _read(path: str, table: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for key, value in table.items():
        reader = KEYS.get(key)
        if reader is None:
            raise _unknown(path, key)
        try:
            values[key] = reader(value)
        except _Unfit as error:
            message = f"`{path}`: `{key}` is {_spoken(value)}, expected {error.message}"
            raise UsageError(message, help=error.help) from error
    return values


def _spoken(value: Any) -> str:
    """Return a value as messages name it: text in backticks, the rest as TOML and JSON have it."""
    return f"`{value}`" if isinstance(value, str) else json.dumps(value, default=str)


def _unknown(path: str, key: str) -> UsageError:
    if key == "tool":
        return UsageError(
            f"`{path}`: unknown key `tool`",
            help="leave the header `[tool.kvtool]` out: it is for pyproject.toml, here the "
            "keys stand at the top",
        )
    if key in _FLAGS_ONLY:
        return UsageError(
            f"`{path}`: `{key}` is no configuration key", help=f"give `--{key}` on the command line"
        )
    return UsageError(
        f"`{path}`: unknown key `{key}`",
        help=did_you_mean(key.replace("_", "-"), KEYS, f"the keys are {', '.join(KEYS)}"),
    )
