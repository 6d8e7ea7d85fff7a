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
        # Not by click's own stream: it changes the encoding of ASCII streams, and removes requested
        # colours.
        click.echo(text, file=sys.stdout, nl=False, color=True)
    except OSError as error:
        if reader_has_gone(error):
            raise BrokenPipeError(*error.args) from error
        raise UnwritableOutput(f"cannot write to standard output: {error.strerror}") from error


def write_report(text: str, output: str | None) -> None:
    """Write a report with one line end, to a file or to standard output.

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
"""Suffix of a report in a directory, by format."""


def show(
    context: click.Context,
    report: JsonReport,
    output_format: str,
    output: str | None = None,
    *,
    talks: bool = False,
    **how: bool,
) -> None:
    """Show the report of a command in the requested format.

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
    """Return whether an error means that the reader of a pipe has gone; on Windows, EINVAL."""
    if isinstance(error, BrokenPipeError):
        return True
    is_invalid = isinstance(error, OSError) and error.errno == errno.EINVAL
    return is_invalid and sys.platform == "win32"


def refuse_stdout(output_format: str) -> None:
    """Refuse a model on standard output if the report goes there, too, or if it is a terminal.

    Raises:
        UsageError: In these cases.
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
    """Return the path of a report, before the work begins.

    Args:
        output: The value of `-o`: a path, a directory, or `-`; None without it.
        source: Path of the model of the report, or `-`; None for none, or for several.
        name: Name of the report in a directory.

    Raises:
        KvtoolError: If it cannot be written there.
    """
    if output is None:
        return None
    check_output(source, output, "name another file for the report")
    return in_directory(output, name)


def stem_of(model: str) -> str:
    """Return the stem of the names of reports about a model."""
    return os.path.splitext(os.path.basename(model))[0]


def _stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def as_unwritable(error: Exception) -> UnwritableOutput | None:
    """Return the error for an exception of a print to standard output; None for others."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return UnwritableOutput(f"cannot write to standard output: {error.strerror}")
    return None


# Pages of help. No line breaks within what is typed or read as one word.


_COLUMN = 28  # longest name of an option with its text on the same line

# Placeholders for breaking characters until the lines are made.
_HYPHEN, _SPACE = "\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"
_WHOLE = re.compile(r"`[^`]*`|\[[^\[\]]{,30}\]|(?<=; )[^;\[\]]{,30}\]")
"""Code, and short text in brackets, such as `[default: 4; 1 or more]`."""


def _bound(text: str) -> str:
    """Return `text` with placeholders where no line may end."""
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
    """A context that uses `PageFormatter`."""

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


def secure_streams() -> None:
    """Make every standard stream usable, with an `OSError` if it is closed.

    Python has None for a closed stream, and the next opened file gets its number, so that messages
    of a library would go into a model. Streams that refuse all data replace closed ones; standard
    error ignores data. Names in models may have characters that the encoding of a stream lacks:
    they are written as escapes.
    """
    # In the order of their numbers, as each gets the lowest free one.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_PATIENCE = 1.0  # seconds


@contextlib.contextmanager
def shown_progress(*, enabled: bool = True, at_once: bool = True) -> Iterator[Progress]:
    """Yield the receiver of the current activity, which it shows on a terminal.

    The line appears after one second, and disappears after the block. Without a terminal at
    standard error, kvtool shows nothing.

    Args:
        enabled: Whether to show anything.
        at_once: Whether the second begins with the block; otherwise with the first activity, and
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
    """A line that appears after `_PATIENCE`."""

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
