"""Baselines: findings that were there before, and are not reported again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.files.atomic import write_bytes
from onnx_kvtool.core.files.patient import patient
from onnx_kvtool.core.files.remote import is_remote
from onnx_kvtool.core.suggestion import missing_file_help
from onnx_kvtool.lint.report import FileReport

__all__ = ["Baseline", "NewBaseline", "read_baseline"]

_VERSION = 1


class Baseline:
    """Fingerprints of known findings, by file.

    Args:
        files: The fingerprints of each file, by its path relative to `base`, with `/` in it.
        base: Absolute directory of the baseline file.
    """

    def __init__(self, files: Mapping[str, Iterable[str]], base: str) -> None:
        self._files = {path: frozenset(known) for path, known in files.items()}
        self._base = base

    def known(self, path: str) -> frozenset[str]:
        """Return the fingerprints of the known findings of a file."""
        return self._files.get(_relative(path, self._base), frozenset())


def read_baseline(path: str) -> Baseline:
    """Read a baseline file.

    Raises:
        UsageError: If it cannot be read, or is none.
    """
    try:
        with open(path, "rb", opener=patient) as file:
            data = json.load(file)
    except FileNotFoundError as error:
        make = f"make it with `--write-baseline {path}`"
        raise UsageError(
            f"the baseline `{path}` does not exist", help=missing_file_help(path, ".json") or make
        ) from error
    except OSError as error:
        raise UsageError(
            f"the baseline `{path}` cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` is no baseline: it is no JSON") from error
    return Baseline(_files(path, data), os.path.dirname(os.path.abspath(path)))


def _files(path: str, data: Any) -> dict[str, list[str]]:
    if not isinstance(data, dict) or data.get("baseline_version") != _VERSION:
        raise UsageError(
            f"`{path}` is no baseline of version {_VERSION}", help="make it with `--write-baseline`"
        )
    files = {}
    try:
        for name, lines in data["files"].items():
            files[str(name)] = [str(line["fingerprint"]) for line in lines]
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"`{path}` is no baseline: it holds no list of findings for each file",
            help="make it with `--write-baseline`",
        ) from error
    return files


class NewBaseline:
    """A baseline file that is to be written of all findings.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._base = os.path.dirname(os.path.abspath(path))
        self._lines: dict[str, list[dict[str, str]]] = {}

    def add(self, file: FileReport) -> None:
        """Take in the findings of one file."""
        if file.findings:
            self._lines[_relative(file.path, self._base)] = [
                {"code": f.code, "fingerprint": f.fingerprint, "place": str(f.location)}
                for f in file.findings
            ]

    def write(self) -> int:
        """Write the file, and return how many findings it holds.

        Equal findings give equal bytes; each is a line of its own, so that a diff can be read.

        Raises:
            UnwritableOutput: If the system refuses.
        """
        data = {"baseline_version": _VERSION, "files": dict(sorted(self._lines.items()))}
        write_bytes(self._path, (json.dumps(data, indent=1) + "\n").encode())
        return sum(map(len, self._lines.values()))


def _relative(path: str, base: str) -> str:
    if path in ("", "-") or is_remote(path):
        return path
    try:
        return os.path.relpath(os.path.abspath(path), base).replace(os.sep, "/")
    except ValueError:  # another drive
        return os.path.abspath(path).replace(os.sep, "/")
