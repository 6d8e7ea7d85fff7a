"""Standard output and error: data, reports as JSON, models, pages of help, progress."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from onnx_kvtool.core.errors import UnwritableOutput, UsageError
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.model_io.places import check_output, in_directory

if TYPE_CHECKING:
    from onnx_kvtool.report.json import JsonReport


# What goes to standard output: data, reports as JSON, models.


def write_data(text: str) -> None:
    """Write `text` and a line end to standard output, at once; see `write_text`."""
    write_text(f"{text}\n")


def write_text(text: str) -> None:
    """Write `text` to standard output, at once.

    Raises:
        BrokenPipeError: If the reader has gone.
        UnwritableOutput: If the system refuses otherwise, as when the disk is full.
    """
    try:
        # To the stream itself: click would give one of ASCII another encoding, and take colours out
        # that were asked for.
        click.echo(text, file=sys.stdout, nl=False, color=True)
    except OSError as error:
        if reader_has_gone(error):
            raise BrokenPipeError(*error.args) from error
        raise UnwritableOutput(f"cannot write to standard output: {error.strerror}") from error


def write_report(text: str, output: str | None) -> None:
    """Write a report that is data with one line end, to a file or to standard output.

    Args:
        text: The report.
        output: Path of the file; None or `-` for standard output.

    Raises:
        BrokenPipeError: As `write_text`.
        UnwritableOutput: If the system refuses.
    """
    if output is None or output == "-":
        write_data(text)
        return
    from onnx_kvtool.model_io.atomic import write_bytes

    write_bytes(output, (text.rstrip("\n") + "\n").encode())


SUFFIXES = {
    "text": ".txt",
    "concise": ".txt",
    "json": ".json",
    "jsonl": ".jsonl",
    "sarif": ".sarif",
    "github": ".txt",
    "gitlab": ".json",
    "junit": ".xml",
    "rdjson": ".json",
    "markdown": ".md",
    "html": ".html",
    "dot": ".dot",
    "mermaid": ".mmd",
}
"""Suffix of the file that a report in each format becomes in a directory."""


def show(
    context: click.Context,
    report: JsonReport,
    output_format: str,
    output: str | None = None,
    *,
    talks: bool = False,
    **how: bool,
) -> None:
    """Show the report of a command in the format that was asked for.

    Args:
        context: The context of the command.
        report: The report.
        output_format: The format.
        output: Path of the file; None or `-` for standard output.
        talks: Whether text goes to standard error.
        how: Arguments of the function that makes the text.
    """
    from onnx_kvtool.report import shown

    if output_format == "json":
        from onnx_kvtool.report.json import to_json

        write_report(to_json(context.command.name or "", report), output)
    elif output_format == "text" and output in (None, "-"):
        from onnx_kvtool.report.text import print_blocks, print_talk

        for place, blocks in enumerate(shown.streams(report, **how)):
            (print_talk if talks or place else print_blocks)(blocks, color=context.color)
    else:
        write_report(shown.rendered(report, output_format), output)


def reader_has_gone(error: BaseException | None) -> bool:
    """Return whether an error says that nobody reads a pipe any more: EINVAL on Windows."""
    if isinstance(error, BrokenPipeError):
        return True
    is_invalid = isinstance(error, OSError) and error.errno == errno.EINVAL
    return is_invalid and sys.platform == "win32"


def refuse_stdout(output_format: str) -> None:
    """Refuse to write a model to standard output where it cannot be alone, or cannot be read.

    Raises:
        UsageError: If the report goes there as well, or it is a terminal.
    """
    if output_format == "json":
        raise UsageError(
            "the model and the JSON report cannot both go to standard output",
            help="write the model to a file with `-o OUT`",
        )
    if _stdout_is_terminal():
        raise UsageError(
            "a model is binary and is not written to a terminal",
            help="redirect standard output, or name a file with `-o OUT`",
        )


def report_place(output: str | None, source: str | None, name: str) -> str | None:
    """Return the path of a report, before the work that it is about.

    Args:
        output: What `-o` says: a path, a directory, or `-`; None without it.
        source: Path of the model that it is about, or `-`; None for none, or for several.
        name: What the report is called in a directory.

    Raises:
        KvtoolError: If it cannot be written there.
    """
    if output is None:
        return None
    check_output(source, output, "name another file for the report")
    return in_directory(output, name)


def stem_of(model: str) -> str:
    """Return what reports about a model are called in a directory, before their suffix."""
    return os.path.splitext(os.path.basename(model))[0]


def _stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def as_unwritable(error: Exception) -> UnwritableOutput | None:
    """Return what to tell the user of an exception from a print to standard output.

    Returns:
        The error; None for any other exception, such as one that names a file.
    """
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return UnwritableOutput(f"cannot write to standard output: {error.strerror}")
    return None


# How a page of help is set: nothing that is typed or read as one word is broken.


_COLUMN = 28  # width of the names of options, beyond which their text starts on a line of its own

# Characters that stand for breaking ones until the lines are made.
_HYPHEN, _SPACE = "\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"
_WHOLE = re.compile(r"`[^`]*`|\[[^\[\]]{,30}\]|(?<=; )[^;\[\]]{,30}\]")
"""Code, and what is short in brackets, such as `[default: 4; 1 or more]`."""


def _bound(text: str) -> str:
    """Return `text` with other characters where no line may end."""
    text = _WHOLE.sub(lambda found: found[0].replace(" ", _SPACE), text)
    return text.replace("-", _HYPHEN)


class PageFormatter(click.HelpFormatter):
    """Breaks lines neither at hyphens nor within code."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_bound(text))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms and their texts."""
        super().write_dl([(term, _bound(text)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """Return what was written."""
        return super().getvalue().replace(_HYPHEN, "-").replace(_SPACE, " ")


class KvtoolContext(click.Context):
    """A context whose help is set by `PageFormatter`."""

    formatter_class = PageFormatter


def write_sections(
    formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    """Write lists of terms and texts under titles, all texts in one column."""
    terms = [len(term) for records in sections.values() for term, _ in records]
    column = max((length for length in terms if length <= _COLUMN), default=_COLUMN)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                rows = [(term.ljust(column), text) for term, text in records]
                formatter.write_dl(rows, col_max=column)


def write_epilog(formatter: click.HelpFormatter, epilog: str | None) -> None:
    r"""Write the blocks of an epilog, which `\b` begins, line by line as they are."""
    for block in (epilog or "").split("\b\n"):
        if block.strip():
            formatter.write_paragraph()
            formatter.write(block.strip("\n") + "\n")


# Standard input, output and error, as far as the caller has left them to the process.


def secure_streams() -> None:
    """Make every standard stream something that can be used, and that fails by an `OSError`.

    A stream that the caller has closed is None in Python, and the next file that is opened gets its
    number: what a library prints would go into a model. In its place comes one that refuses, or,
    for standard error, swallows. Characters that the encoding of a stream lacks are written as
    escapes; a name in a model may hold any character, whatever the locale is.
    """
    # In the order of their numbers, as each takes the lowest that is free.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


# What is under way, on standard error, for people who wait.


_PATIENCE = 1.0  # seconds


@contextlib.contextmanager
def shown_progress(*, enabled: bool = True, at_once: bool = True) -> Iterator[Progress]:
    """Yield what shows on a terminal what is under way.

    The line appears when a second has passed, however long the work at hand is silent, and is gone
    after the block. Where standard error is no terminal, nothing is ever shown.

    Args:
        enabled: Whether anything is shown.
        at_once: Whether the second begins with the block; if not, with the first that is said, and
            there is no thread before.
    """
    if not enabled or not sys.stderr.isatty():
        yield silent
        return
    display = _Display()
    if at_once:
        display.begin()
    try:
        yield display.say
    finally:
        display.close()


class _Display:
    """A line that is shown once its time has come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: tuple[str, int, int] = ("working", 0, 0)
        self._shown: Progress | None = None
        self._stack = contextlib.ExitStack()
        self._is_closed = False
        self._timer = threading.Timer(_PATIENCE, self._open)
        self._timer.daemon = True

    def begin(self) -> None:
        if self._timer.ident is None:
            self._timer.start()

    def say(self, what: str, part: int = 0, parts: int = 0) -> None:
        self.begin()
        with self._lock:
            self._latest = (what, part, parts)
            if self._shown is not None:
                self._shown(what, part, parts)

    def _open(self) -> None:
        from onnx_kvtool.report.text import progress_line

        with self._lock:
            if not self._is_closed:
                self._shown = self._stack.enter_context(progress_line())
                self._shown(*self._latest)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_closed = True
            self._stack.close()
