"""What the command line says on standard error when it cannot do what was asked."""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from onnx_kvtool import __version__
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.report.escape import escape

if TYPE_CHECKING:
    from onnx_kvtool.lint.report import Failure

__all__ = ["closest", "show_bug", "show_error", "show_failure", "show_wrong_usage"]


def closest(word: str, words: Sequence[str]) -> str | None:
    """Return the word of `words` that `word` was probably meant to be; None when none is near."""
    return next(iter(get_close_matches(word, words, n=1)), None)


def show_error(error: KvtoolError, *, debug: bool) -> None:
    """Print an error that the user can do something about; with `debug`, its traceback first."""
    if debug:
        traceback.print_exception(error)
    _show("error", error.message, error.help)


def show_bug(error: Exception, *, debug: bool) -> None:
    """Print one line about an exception that nobody foresaw; with `debug`, its traceback first."""
    if debug:
        traceback.print_exception(error)
    text = (str(error).splitlines() or [""])[0]
    how = "with the traceback above" if debug else "with what `kvtool --debug` shows"
    _show(
        "bug",
        f"{type(error).__name__}: {text} (kvtool {__version__}, Python "
        f"{platform.python_version()}, {sys.platform}); please report it {how}",
        None,
    )


def show_failure(path: str, failure: Failure, *, debug: bool) -> None:
    """Print why one of several files was not checked; with `debug`, where that happened first."""
    if debug and failure.traceback:
        click.echo(failure.traceback, err=True)
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
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption):
        message = _no_such_option(error.option_name, context)
    _show(
        "error",
        message[:1].lower() + message[1:].removesuffix("."),
        f"run `{context.command_path if context else 'kvtool'} --help`",
        color=context.color if context else None,
    )


def _no_such_option(name: str, context: click.Context | None) -> str:
    """Return the message for an unknown option: where it belongs, or what it resembles."""
    if context is None:
        return f"no such option `{name}`"
    if context.parent and name in _options(context.parent.command):
        return f"`{name}` goes before `{context.info_name}`"
    if isinstance(context.command, click.Group) and any(
        name in _options(command) for command in context.command.commands.values()
    ):
        return f"`{name}` goes after the command"
    similar = closest(name, _options(context.command))
    return f"no such option `{name}`" + (f", did you mean `{similar}`?" if similar else "")


def _options(command: click.Command) -> list[str]:
    return [name for param in command.params for name in (*param.opts, *param.secondary_opts)]


def _show(kind: str, message: str, help: str | None, color: bool | None = None) -> None:
    """Print a message and its remedy; `color` None leaves it to the context that click is in."""
    label = click.style(f"kvtool: {kind}:", fg="red", bold=True)
    click.echo(f"{label} {escape(message)}", err=True, color=color)
    if help:
        label = click.style("  help:", fg="cyan")
        click.echo(f"{label} {escape(help)}", err=True, color=color)
