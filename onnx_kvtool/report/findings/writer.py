"""Writing findings file by file, with their paths, names and groups."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import CheckReport, FileReport, Tally
from onnx_kvtool.model_io.remote import is_remote
from onnx_kvtool.report.blocks import joined

# Places in a model in one word, for formats that know lines of text alone.


def qualified_name(place: Location) -> str:
    """Return `graph:node` or `graph:value`, as far as the place goes; "" for the whole model."""
    parts = (place.graph, place.node_label or place.value)
    return ":".join(part for part in parts if part)


# Paths of models as other tools want them.


_STANDARD_INPUT = "stdin"


def shown_path(path: str) -> str:
    """Return a path relative to the current directory, with `/` between its parts.

    A path outside of the current directory is absolute. Standard input is `stdin`, and so is a
    model in memory, which has no path.
    """
    if path in ("", "-"):
        return _STANDARD_INPUT
    if is_remote(path):
        return path
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return Path(path).absolute().as_posix()
    if relative.split(os.sep)[0] == os.pardir:
        return Path(os.path.abspath(path)).as_posix()
    return relative.replace(os.sep, "/")


def uri(path: str) -> tuple[str, bool]:
    """Return a path as a URI reference, and whether that is relative to the current directory."""
    shown = shown_path(path)
    if is_remote(shown):
        return shown, False
    if os.path.isabs(shown):
        return Path(shown).as_uri(), False
    return quote(shown.encode("utf-8", "surrogateescape")), True


# Findings that differ by the numbers in names alone, told once.


_RANGES = 30  # characters that numbers may take: `{1..29}`, `{1,3,5,7,9..29}`


def folded(findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[Finding]]]:
    """Yield the first finding of each group with the others, in the order of the first ones."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.group, []).append(finding)
    for first, *others in groups.values():
        yield first, others


def others_in_words(others: Sequence[Finding]) -> str:
    """Return what to say of findings that are like the one before: `29 more, layer.{1..29}`."""
    names = list(dict.fromkeys(qualified_name(finding.location) for finding in others))
    if not names[-1]:
        return f"{len(others)} more"
    name = joined(names)
    if name is None or len(name) > len(names[0]) + _RANGES:  # numbers without a pattern
        name = f"the last at {names[-1]}"
    return f"{len(others)} more, {name}"


# Writing findings file by file, so that no report is ever held as a whole.


_IN_MEMORY = 1 << 20  # bytes
_PIECE = 1 << 16  # characters


class Writer:
    """What makes the text of a report in one format, from one file after the other.

    A writer is used once: `begin`, `file` for each file in order, `end`. All that they return, one
    behind the other, is the text, with a line end after its last line; a text without lines is "".

    Args:
        tally: What all files come to, which grows as files are added; the lowest severity that
            makes the answer no is known at once.
        statistics: Whether to count what each rule finds, where the format has a place for it.
    """

    in_lines: ClassVar[bool] = False
    """Whether the text of each file is of use without what follows."""

    def __init__(self, tally: Tally, *, statistics: bool = False) -> None:
        self.tally = tally
        self.statistics = statistics

    def begin(self) -> str:
        """Return what stands in front of the first file."""
        return ""

    def file(self, file: FileReport) -> str:
        """Return the text of one file; "" where there is none, or where it comes at the end."""
        raise NotImplementedError

    def end(self) -> Iterator[str]:
        """Yield what stands behind the last file, when the tally is complete."""
        yield from ()


def rendered(kind: type[Writer], report: CheckReport, *, statistics: bool = False) -> str:
    """Return the whole text of a report that is at hand."""
    writer = kind(report.tally, statistics=statistics)
    files = (writer.file(file) for file in report.files)
    return "".join((writer.begin(), *files, *writer.end()))


class Spool:
    """Text that is kept for later: the first MiB in memory, more than that on disk."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            _IN_MEMORY, "w+", encoding="utf-8", errors="surrogatepass", newline=""
        )

    def add(self, text: str) -> None:
        """Keep some more."""
        self._file.write(text)

    def pieces(self) -> Iterator[str]:
        """Yield all that was kept, in order, and forget it."""
        with self._file as file:
            file.seek(0)
            while piece := file.read(_PIECE):
                yield piece
