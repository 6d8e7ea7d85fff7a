"""Writing findings file by file, so that no report is ever held as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import ClassVar

from onnx_kvtool.lint.report import CheckReport, FileReport, Tally

__all__ = ["Spool", "Writer", "rendered"]

_IN_MEMORY = 1 << 20  # bytes
_PIECE = 1 << 16  # characters


class Writer:
    """What makes the text of a report in one format, from one file after the other.

    A writer is used once: `begin`, `file` for each file in order, `end`. All that they return, one
    behind the other, is the text, with a line end after its last line; a text without lines is "".

    Args:
        tally: What all files come to, which grows as files are added; the severity from which on a
            finding makes the answer no is known at once.
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
