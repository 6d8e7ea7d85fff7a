"""What is wrong with a command line, in the words of the house."""

from __future__ import annotations

import re

import click

from onnx_kvtool.core.words import closest

__all__ = ["WrongUsage", "WrongValue", "explain"]


class WrongUsage(click.UsageError):
    """A command line that cannot be meant.

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
