"""The command group: every way a command can end becomes one exit code of the contract."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from io import UnsupportedOperation
from typing import Any

import click

from onnx_kvtool.cli.failure import closest, show_bug, show_error, show_wrong_usage
from onnx_kvtool.core.errors import KvtoolError

__all__ = ["KvtoolGroup"]

_BUG = 4
_INTERRUPTED = 130  # what shells report for a process ended by SIGINT
_BROKEN_PIPE = 141  # and for one ended by SIGPIPE


class KvtoolGroup(click.Group):
    """A group whose commands end in exit code 0 to 4, and never in a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; exit the process unless `standalone_mode` is false."""
        extra.setdefault("color", _environment_color())
        inherited = super().main
        if not standalone_mode:
            return inherited(args, prog_name, complete_var, standalone_mode, **extra)
        try:
            code = inherited(args, prog_name, complete_var, not standalone_mode, **extra)
        except click.ClickException as error:
            show_wrong_usage(error)
            code = error.exit_code
        except click.Abort:
            code = _INTERRUPTED
        # The interpreter would look for cycles in every node of the model that it is about to drop,
        # which takes a tenth of the time of a large one.
        gc.freeze()
        sys.exit(code or 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command; every exception but click's own becomes an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except BrokenPipeError:
            _discard_stdout()
            ctx.exit(_BROKEN_PIPE)
        except KvtoolError as error:
            if isinstance(error.__cause__, BrokenPipeError):  # met while the model was written
                _discard_stdout()
                ctx.exit(_BROKEN_PIPE)
            show_error(error, debug=ctx.params["debug"])
            ctx.exit(error.exit_code)
        except Exception as error:  # noqa: BLE001 - the last resort: a bug is said in one line
            show_bug(error, debug=ctx.params["debug"])
            ctx.exit(_BUG)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` names, or say which one comes closest."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            message = f"no such command `{args[0]}`"
            if similar := closest(args[0], names):
                message += f", did you mean `{similar}`?"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)


def _environment_color() -> bool | None:
    """Return whether the environment wants colour; None colours what goes to a terminal.

    `NO_COLOR` and `FORCE_COLOR` count when they are set and not empty, `NO_COLOR` first.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _discard_stdout() -> None:
    """Let the flush at interpreter exit succeed although the reader of the pipe has gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except UnsupportedOperation:  # standard output is no file, as under a test runner
        return
