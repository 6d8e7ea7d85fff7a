"""What goes to standard output: data, reports as JSON, models."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

import click

from onnx_kvtool.core.errors import UnwritableOutput, UsageError
from onnx_kvtool.core.files.places import check_output, in_directory

if TYPE_CHECKING:
    from onnx_kvtool.report.json import JsonReport

__all__ = [
    "as_unwritable",
    "reader_has_gone",
    "refuse_stdout",
    "report_place",
    "stem_of",
    "write_data",
    "write_json",
    "write_report",
    "write_text",
]


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
    from onnx_kvtool.core.files.atomic import write_bytes

    write_bytes(output, (text.rstrip("\n") + "\n").encode())


def write_json(command: str, report: JsonReport) -> None:
    """Write the report of a command to standard output as JSON, with the header of all."""
    from onnx_kvtool.report.json import to_json

    write_data(to_json(command, report))


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
