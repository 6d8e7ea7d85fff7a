"""The types of options' values, and messages about invalid ones."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from onnx_kvtool import __version__
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.words import bytes_of, closest, did_you_mean, escape, escape_lines

if TYPE_CHECKING:
    from onnx_kvtool.lint.report import Failure


# What is wrong with a command line, in the words of the house.


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
    """Return what messages call an option or an argument."""
    if isinstance(param, click.Option):
        return f"`{max(param.opts, key=len)}`"
    return "" if param is None else f"`{(param.metavar or param.name or '').strip('[].')}`"


def _misused(name: str, context: click.Context | None) -> str:
    """Return what was done to an option: it got a value it does not take, or lacks one."""
    params = context.command.params if context is not None else []
    found = next((p for p in params if name in (*p.opts, *p.secondary_opts)), None)
    if isinstance(found, click.Option) and found.is_flag:
        return "takes no value"
    metavar = getattr(found, "metavar", None)
    return f"needs a value: {metavar}" if metavar else "needs a value"


def _no_such_option(name: str, context: click.Context | None) -> tuple[str, str | None]:
    """Return the message for an unknown option: where it belongs, or what it resembles."""
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


# What the value of an option can be, with the house style of messages for what it cannot.


class Word(click.Choice[str]):
    """One of a few words; any other is answered with the nearest of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, which is one of the choices."""
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
        above: What to do instead, for who gives a greater value; None for the help of the command.
    """

    def __init__(self, min: int, max: int | None = None, *, above: str | None = None) -> None:
        super().__init__(min, max)
        self.above = above

    @property
    def spoken(self) -> str:
        """The range, as people say it: `1 to 9`, `1 or more`."""
        return f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer, which lies in the range."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter as error:
            text = str(value)
            is_above = self.max is not None and text.isdecimal() and int(text) > self.max
            help = self.above if is_above else None
            raise WrongValue(text, self.spoken, ctx, param, help) from error


class Rows(click.ParamType):  # type: ignore[type-arg]  # a generic class from click 8.4 on
    """A number of rows: an integer of at least 1, or the name of a symbolic dimension."""

    name = "rows"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Return the number or the name."""
        text = str(value)
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
        if text.isidentifier():
            return text
        raise WrongValue(text, "an integer of at least 1, or a name", ctx, param)


class ReportFile(click.Path):
    """An output file that is not a model; a file named like a model is never replaced.

    `-o *.onnx` names the first model of a directory, and so does `-o` before the models.
    """

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(readable=False, allow_dash=allow_dash)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, which does not end with `.onnx`."""
        path = super().convert(value, param, ctx)
        if os.path.splitext(os.fsdecode(path))[1].lower() == ".onnx":
            what, help = "a file that is no model", "write what is to be written to another file"
            raise WrongValue(os.fsdecode(path), what, ctx, param, help)
        return path


class Tolerance(click.FloatRange):
    """A number that is finite and not negative: within infinity lies every difference."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            raise WrongValue(str(value), "a number of at least 0", ctx, param)
        return number


class Seconds(click.ParamType):  # type: ignore[type-arg]  # a generic class from click 8.4 on
    """A time in seconds, above 0."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise WrongValue(str(value), "a number of seconds above 0", ctx, param)
        return number


class Size(click.ParamType):  # type: ignore[type-arg]  # a generic class from click 8.4 on
    """A number of bytes above 0, with or without a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, which `bytes_of` reads."""
        if not bytes_of(str(value)):
            raise WrongValue(str(value), "a size such as `2GiB`", ctx, param)
        return str(value)


# What the command line says on standard error when it cannot do what was asked.


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
    """Print the output of an interrupted command."""
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
