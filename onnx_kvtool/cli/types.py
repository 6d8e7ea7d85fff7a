"""The types of options' values, and messages about invalid ones."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from onnx_kvtool import __version__
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.machine import free_reserve
from onnx_kvtool.core.words import bytes_of, closest, did_you_mean, escape, escape_lines

if TYPE_CHECKING:
    from onnx_kvtool.lint.report import Failure


class WrongUsage(click.UsageError):
    """An invalid command line.

    Args:
        message: What is wrong.
        ctx: Where the command line stands.
        help: What to do; None for the help of the command.
    """

    def __init__(self, message: str, ctx: click.Context | None, help: str | None = None) -> None:
        super().__init__(message, ctx)
        self.help = help


class WrongValue(click.BadParameter):
    """A value that an option or an argument cannot have.

    Args:
        value: The value, as it was given.
        expected: What was expected: `an integer from 1 to 9`.
        ctx: Where the command line stands.
        param: The option or the argument.
        help: What to do; None for the help of the command.
    """

    def __init__(
        self,
        value: str,
        expected: str,
        ctx: click.Context | None,
        param: click.Parameter | None,
        help: str | None = None,
    ) -> None:
        shown = value if re.fullmatch(r"-?\d+", value) else f"`{value}`"
        super().__init__(f"is {shown}, expected {expected}", ctx, param)
        self.help = help


def explain(error: click.ClickException) -> tuple[str, str]:
    """Return what is wrong, one sentence without a full stop, and what to do about it."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    help: str | None = getattr(error, "help", None)
    if isinstance(error, click.NoSuchOption):
        message, help = _no_such_option(error.option_name, context)
    elif isinstance(error, click.BadOptionUsage):
        message = f"`{error.option_name}` {_misused(error.option_name, context)}"
    elif isinstance(error, click.MissingParameter):
        message = f"missing argument {_spoken(error.param)}"
    elif isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{_spoken(error.param)} {error.message}"
    else:
        text = error.format_message()
        message = text[:1].lower() + text[1:].removesuffix(".")
    return message, help or f"run `{context.command_path if context else 'kvtool'} --help`"


def _spoken(param: click.Parameter | None) -> str:
    """Return the name of an option or an argument in messages."""
    if isinstance(param, click.Option):
        return f"`{max(param.opts, key=len)}`"
    return "" if param is None else f"`{(param.metavar or param.name or '').strip('[].')}`"


def _misused(name: str, context: click.Context | None) -> str:
    """Return the error of an option with a superfluous value, or without a value."""
    params = context.command.params if context is not None else []
    found = next((p for p in params if name in (*p.opts, *p.secondary_opts)), None)
    if isinstance(found, click.Option) and found.is_flag:
        return "takes no value"
    metavar = getattr(found, "metavar", None)
    return f"needs a value: {metavar}" if metavar else "needs a value"


def _no_such_option(name: str, context: click.Context | None) -> tuple[str, str | None]:
    """Return the message for an unknown option, and its help: the right place or name."""
    message = f"no such option `{name}`"
    if context is None:
        return message, None
    if context.parent and name in _options(context.parent.command):
        place = f"kvtool {name} {context.info_name}"
        return f"`{name}` goes before `{context.info_name}`", f"write `{place} ...`"
    if isinstance(context.command, click.Group) and any(
        name in _options(command) for command in context.command.commands.values()
    ):
        return f"`{name}` goes after the command", None
    similar = closest(name, _options(context.command))
    return message, f"did you mean `{similar}`?" if similar else None


def _options(command: click.Command) -> list[str]:
    names = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
    return [name for name in names if name.startswith("-")] + ["--help"]


class Word(click.Choice[str]):
    """One of a few words; the error for another word names the nearest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        if value in self.choices:
            return str(value)
        *most, last = (f"`{word}`" for word in self.choices)
        expected = f"{', '.join(most)} or {last}"
        raise WrongValue(value, expected, ctx, param, did_you_mean(str(value), self.choices))


class Whole(click.IntRange):
    """An integer with a least value, and maybe a greatest one.

    Args:
        min: The least value.
        max: The greatest value; None where there is none.
        above: What to do instead of a greater value; None for the help of the command.
    """

    def __init__(self, min: int, max: int | None = None, *, above: str | None = None) -> None:
        super().__init__(min, max)
        self.above = above

    @property
    def spoken(self) -> str:
        """The range in words: `1 to 9`, `1 or more`."""
        return f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter as error:
            text = str(value)
            is_above = self.max is not None and text.isdecimal() and int(text) > self.max
            help = self.above if is_above else None
            raise WrongValue(text, self.spoken, ctx, param, help) from error


class Parsed(click.ParamType):  # type: ignore[type-arg]  # a generic class from click 8.4 on
    """A value that a function reads.

    Args:
        name: As for `click.ParamType`.
        expected: The expected value in words.
        read: Returns the value of a text; None for an invalid text.
        spoken: The range in the help; "" for none.
    """

    def __init__(
        self, name: str, expected: str, read: Callable[[str], Any], spoken: str = ""
    ) -> None:
        self.name, self.spoken = name, spoken
        self._expected, self._read = expected, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value."""
        found = self._read(str(value))
        if found is None:
            raise WrongValue(str(value), self._expected, ctx, param)
        return found


def _rows(text: str) -> int | str | None:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    return text if text.isidentifier() else None


def _number(text: str) -> float | None:
    """Return a finite number that is not negative: every difference lies within infinity."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _budget(text: str) -> str | None:
    from onnx_kvtool.core.machine import Budget

    try:
        Budget.parse(text)
    except UsageError:
        return None
    return text


BUDGET = Parsed("budget", "memory, time or both: `1GiB`, `30s`", _budget)
ROWS = Parsed("rows", "an integer of at least 1, or a name", _rows)
SECONDS = Parsed("seconds", "a number of seconds above 0", lambda text: _number(text) or None)
SIZE = Parsed("size", "a size such as `2GiB`", lambda text: text if bytes_of(text) else None)
TOLERANCE = Parsed("float", "a number of at least 0", _number, "0 or more")


class ReportFile(click.Path):
    """An output file that is not a model, and whose name must not be one of a model.

    The shell expands `-o *.onnx` to all models of a directory.
    """

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(readable=False, allow_dash=allow_dash)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path."""
        path = super().convert(value, param, ctx)
        if os.path.splitext(os.fsdecode(path))[1].lower() == ".onnx":
            what, help = "a file that is no model", "write what is to be written to another file"
            raise WrongValue(os.fsdecode(path), what, ctx, param, help)
        return path


# Messages on standard error.


def show_error(error: KvtoolError, *, debug: bool) -> None:
    """Print a foreseen error; with `debug`, its traceback first."""
    free_reserve()
    if debug:
        _show_traceback("".join(traceback.format_exception(error)))
    _show("error", error.message, error.help)


def show_bug(error: Exception, *, debug: bool) -> None:
    """Print one line about an unforeseen exception; with `debug`, its traceback first."""
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
    """Print what an interrupted command has written."""
    from onnx_kvtool.model_io.atomic import written

    names = written()
    message = "nothing was written"
    if "standard output" in names:
        message = "what went to standard output may not be whole"
    elif names:
        listed = ", ".join(f"`{name}`" for name in names)
        message = f"{listed} {'was' if len(names) == 1 else 'were'} written, and nothing else"
    _show("interrupted", message, None)


def show_failure(path: str, failure: Failure, *, debug: bool) -> None:
    """Print why one of several files was not checked; with `debug`, the traceback first."""
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
    """Print a message and its help; `color` None is that of click's current context."""
    lines = [f"{click.style(f'kvtool: {kind}:', fg='red', bold=True)} {escape(message)}"]
    if help:
        lines.append(f"{click.style('  help:', fg='cyan')} {escape(help)}")
    with contextlib.suppress(OSError):  # standard error is full, or closed: nobody can be told
        click.echo("\n".join(lines), err=True, color=color)
