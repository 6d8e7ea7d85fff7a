"""Writing the findings of `kvtool check`, file by file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from onnx_kvtool.cli.output import write_text
from onnx_kvtool.core.errors import UnwritableOutput
from onnx_kvtool.lint.report import FileReport, Tally
from onnx_kvtool.model_io.atomic import replacing
from onnx_kvtool.report.findings.by_format import WRITERS
from onnx_kvtool.report.findings.github import StepSummary, step_outputs
from onnx_kvtool.report.findings.writer import Spool, TextWriter, Writer, closing, remarks_of
from onnx_kvtool.report.text import print_talk

if TYPE_CHECKING:
    from onnx_kvtool.commands.check_settings import Settings


S = TypeVar("S", bound="Sink")


class Sink:
    """Writes a report, part by part, to a file or to standard output.

    A file appears as a whole at the end of the block, or not at all. Formats of lines go to
    standard output line by line. A document goes there as a whole, and so do lines on a terminal,
    because they would mix with the progress line. Until then, they are on disk.

    Args:
        writer: Makes the text.
        output: The file; None or `-` for standard output.
    """

    def __init__(self, writer: Writer, output: str | None) -> None:
        self.writer = writer
        self._output = None if output == "-" else output
        self._open = contextlib.ExitStack()
        self._emit: Callable[[str], None] = write_text
        self._spool: Spool | None = None
        if self._output is None and (sys.stdout.isatty() or not writer.in_lines):
            self._spool = Spool()
            self._emit = self._spool.add

    def __enter__(self: S) -> S:
        """Open the file, to refuse an unwritable one before the work, and write the beginning."""
        if self._output is not None:
            file = self._open.enter_context(replacing(self._output))

            def emit(text: str) -> None:
                file.write(text.encode())

            self._emit = emit
        self.write(self.writer.begin())
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def write(self, text: str) -> None:
        """Write the text for one file."""
        if text:
            self._emit(text)

    def end(self) -> None:
        """Write the end."""
        for piece in self.writer.end():
            self._emit(piece)
        if self._spool is not None:
            for piece in self._spool.pieces():
                write_text(piece)


class ShownFindings(Sink):
    """The report of a run, and messages about the run.

    Args:
        settings: The format and its settings.
        output: File for the report; None or `-` for standard output.
        color: Whether to use colour; None does so on a terminal.
        quiet: Whether to print no messages about the run.
        verbose: Whether to print the status of each file.

    Attributes:
        tally: Counts all shown files.
    """

    def __init__(
        self, settings: Settings, output: str | None, color: bool | None, quiet: bool, verbose: bool
    ) -> None:
        self.tally = Tally(settings.fail_on)
        self._settings = settings
        self._color = color
        self._quiet = quiet
        self._verbose = verbose
        kind = WRITERS.get(settings.output_format)
        if kind is None:
            styled = output in (None, "-") and (sys.stdout.isatty() if color is None else color)
            writer: Writer = TextWriter(
                self.tally,
                statistics=settings.statistics,
                diff=settings.fix == "show",
                color=color if styled else False,
                verbose=verbose,
            )
        else:
            writer = kind(self.tally, statistics=settings.statistics)
        super().__init__(writer, output)
        self._summary = StepSummary() if settings.output_format == "github" else None

    def file(self, file: FileReport) -> None:
        """Show the findings of one file, and its messages on standard error."""
        self.write(self.writer.file(file))
        if self._summary is not None:
            self._summary.add(file)
        # Making a console takes longer than the check of an unchanged small model.
        if not self._quiet and (remarks := list(remarks_of(file, verbose=self._verbose))):
            print_talk(remarks, color=self._color)

    def end(self) -> None:
        """Write the end, and the files of GitHub Actions."""
        super().end()
        if self._summary is not None:
            text = self._summary.text
            _append_for_github("GITHUB_STEP_SUMMARY", "step summary", text, self.tally)
        _append_for_github("GITHUB_OUTPUT", "outputs of the step", step_outputs, self.tally)

    def close(self, *, fails: bool) -> None:
        """Print the summary on standard error.

        Args:
            fails: Whether the exit code is not 0.
        """
        if not self._quiet:
            offers_fixes = self._settings.fix != "show"
            last = closing(self.tally, fails=fails, offers_fixes=offers_fixes)
            print_talk(last, color=self._color)


def _append_for_github(
    variable: str, what: str, text: Callable[[Tally], str], tally: Tally
) -> None:
    """Add a text to the file of GitHub Actions that a variable names; nothing if it is unset."""
    path = os.environ.get(variable)
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text(tally))
    except OSError as error:
        raise UnwritableOutput(
            f"cannot write the {what} `{path}`: {error.strerror or error}"
        ) from error
