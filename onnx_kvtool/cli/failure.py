"""What the command line says on standard error when it cannot do what was asked."""

from __future__ import annotations

import contextlib
import platform
import sys
import traceback
from typing import TYPE_CHECKING

import click

from onnx_kvtool import __version__
from onnx_kvtool.cli.wrong_usage import explain
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.words import escape, escape_lines

if TYPE_CHECKING:
    from onnx_kvtool.lint.report import Failure

__all__ = ["show_bug", "show_error", "show_failure", "show_interrupted", "show_wrong_usage"]


def show_error(error: KvtoolError, *, debug: bool) -> None:
    """Print an error that the user can do something about; with `debug`, its traceback first."""
    if debug:
        _show_traceback("".join(traceback.format_exception(error)))
    _show("error", error.message, error.help)


def show_bug(error: Exception, *, debug: bool) -> None:
    """Print one line about an exception that nobody foresaw; with `debug`, its traceback first."""
    if debug:
        _show_traceback("".join(traceback.format_exception(error)))
    text = (str(error).splitlines() or [""])[0]
    how = "with the traceback above" if debug else "with what `kvtool --debug` shows"
    _show(
        "bug",
        f"{type(error).__name__}: {text} (kvtool {__version__}, Python "
        f"{platform.python_version()}, {sys.platform}); please report it {how}",
        None,
    )


def show_interrupted() -> None:
    """Print what a command that was interrupted has written by then."""
    from onnx_kvtool.core.files.atomic import written

    names = written()
    message = "nothing was written"
    if "standard output" in names:
        message = "what went to standard output may not be whole"
    elif names:
        listed = ", ".join(f"`{name}`" for name in names)
        message = f"{listed} {'was' if len(names) == 1 else 'were'} written, and nothing else"
    _show("interrupted", message, None)


def show_failure(path: str, failure: Failure, *, debug: bool) -> None:
    """Print why one of several files was not checked; with `debug`, where that happened first."""
    if debug and failure.traceback:
        _show_traceback(failure.traceback)
    message = f"`{path}`: {failure.message}"
    if not failure.traceback:
        _show("error", message, failure.help)
        return
    _show("bug", message, "please report it with what `kvtool --debug` shows")


def show_wrong_usage(error: click.ClickException) -> None:
    """Print an error that click found in the arguments, with the nearest right word if any."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    message, help = explain(error)
    _show("error", message, help, color=context.color if context else None)


def _show_traceback(text: str) -> None:
    click.echo(escape_lines(text.rstrip("\n")), err=True)


def _show(kind: str, message: str, help: str | None, color: bool | None = None) -> None:
    """Print a message and its remedy; `color` None leaves it to the context that click is in."""
    lines = [f"{click.style(f'kvtool: {kind}:', fg='red', bold=True)} {escape(message)}"]
    if help:
        lines.append(f"{click.style('  help:', fg='cyan')} {escape(help)}")
    with contextlib.suppress(OSError):  # standard error is full, or closed: nobody can be told
        click.echo("\n".join(lines), err=True, color=color)
