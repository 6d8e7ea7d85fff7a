"""The `kvtool` command: its table of commands, and the exit codes of every way to end."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import UnsupportedOperation
from types import FrameType
from typing import Any, ClassVar, Literal

import click

from onnx_kvtool.cli.bench import bench
from onnx_kvtool.cli.check import check
from onnx_kvtool.cli.command import HELP_NAMES, Page, show_version
from onnx_kvtool.cli.diff import diff
from onnx_kvtool.cli.eval import evaluate
from onnx_kvtool.cli.infer import infer
from onnx_kvtool.cli.inspect import inspect
from onnx_kvtool.cli.lookup import help_, ops, rule, targets
from onnx_kvtool.cli.merge import merge
from onnx_kvtool.cli.output import (
    as_unwritable,
    reader_has_gone,
    secure_streams,
    write_sections,
)
from onnx_kvtool.cli.print_ import print_
from onnx_kvtool.cli.rewriting import lower, raise_
from onnx_kvtool.cli.types import (
    Word,
    WrongUsage,
    show_bug,
    show_error,
    show_interrupted,
    show_wrong_usage,
)
from onnx_kvtool.cli.verify import verify
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import as_shortage, collect_rarely
from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.words import closest
from onnx_kvtool.guard.early_sympy import put_off

_BUG = 4
_INTERRUPTED = 130  # what shells report for a process ended by SIGINT
_BROKEN_PIPE = 141  # and for one ended by SIGPIPE


class KvtoolGroup(Page, click.Group):
    """A group whose commands end in exit code 0 to 4, and never in a traceback."""

    purposes: ClassVar[Mapping[str, Sequence[str]]] = {
        "Rewrite a model": ("lower", "raise"),
        "Look at a model": ("inspect", "infer", "check", "merge", "diff", "print"),
        "Run a model": ("eval", "verify", "bench"),
        "Ask what kvtool knows": ("ops", "rule", "targets", "help"),
    }
    """Names of commands by purpose, as the help lists them."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; exit the process unless `standalone_mode` is false."""
        extra.setdefault("color", _environment_color())
        if "_KVTOOL_COMPLETE" in os.environ:
            from onnx_kvtool.cli.completion import install

            install()
        secure_streams()
        inherited = super().main
        if not extra.get("standalone_mode", True):
            return inherited(*args, **extra)
        try:
            code = inherited(*args, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            show_wrong_usage(error)
            code = error.exit_code
        except click.Abort:
            show_interrupted()
            code = _INTERRUPTED
        except (KvtoolError, OSError, MemoryError) as error:  # met before the command began
            known = _foreseen(error)
            if known is None:
                raise
            show_error(known, debug=False)
            code = known.exit_code
        try:
            sys.stdout.flush()
        except OSError:  # already reported; the interpreter would report it again
            _discard_stdout()
        # The interpreter would look for cycles in the whole model before it exits: a tenth of the
        # time for a large one.
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
        except Exception as error:  # noqa: BLE001 - the last resort: a bug is one line
            # The cause is that of an error met while the model was written.
            if isinstance(error, BrokenPipeError) or reader_has_gone(error.__cause__):
                _discard_stdout()
                ctx.exit(_BROKEN_PIPE)
            known, debug = _foreseen(error), ctx.params["debug"]
            if known is None:
                show_bug(error, debug=debug)
                ctx.exit(_BUG)
            if not debug:
                error.__traceback__ = None  # frees memory for the message
            show_error(known, debug=debug)
            ctx.exit(known.exit_code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the named command, or refuse it with the nearest one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            options = [name for param in self.params for name in param.opts]
            near = closest(args[0], self.list_commands(ctx))
            if f"--{args[0]}" in options:
                near = f"{ctx.info_name} --{args[0]}"
            help = f"did you mean `{near}`?" if near else None
            raise WrongUsage(f"no such command `{args[0]}`", ctx, help)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by purpose, then the options."""
        sections = {
            title: [(name, self.commands[name].get_short_help_str(limit=200)) for name in names]
            for title, names in self.purposes.items()
        }
        write_sections(formatter, sections)
        records = (param.get_help_record(ctx) for param in self.get_params(ctx))
        write_sections(formatter, {"Options": [r for r in records if r is not None]})


def _foreseen(error: Exception) -> KvtoolError | None:
    """Return the error with an exit code of its own that an exception means; None for a bug."""
    if isinstance(error, KvtoolError):
        return error
    return as_shortage(error) or as_unwritable(error)


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


_NAMES = ("SIGTERM", "SIGHUP", "SIGBREAK")


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM, SIGHUP and SIGBREAK raise `SystemExit`, so that temporary files are removed.

    The exit code is 128 and the number of the signal, as shells report it; also for SIGINT where
    click does not handle it. Signals that are ignored, as under nohup, or have another handler are
    not changed. After the block, each signal ends the process at once.
    """
    known = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    numbers = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _end)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        show_interrupted()
        sys.exit(128 + signal.SIGINT)
    finally:
        for number in (*numbers, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    # Not twice: the removal of files is under way.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


_COMMANDS = (
    *(check, diff, evaluate, infer, inspect, lower, merge),
    *(ops, print_, raise_, rule, targets, bench, verify),
)
COMMANDS: Table[str, click.Command] = Table("command", ((one.name or "", one) for one in _COMMANDS))


_EPILOG = """\b
Examples:
  kvtool inspect decoder.onnx                 shows its caches and their cost
  kvtool lower decoder.onnx --opset 18        writes decoder.opset18.onnx
  kvtool check models                         checks every *.onnx below models
  kvtool help lower                           explains a command, with examples

\b
Exit codes:
  0  done; the answer is yes
  1  done; the answer is no: a rewrite is refused, models differ, a run fails
  2  wrong usage
  3  the input cannot be read, or models cannot be run
  4  a bug in kvtool
"""


@click.group(
    "kvtool",
    cls=KvtoolGroup,
    epilog=_EPILOG,
    commands={**COMMANDS, "help": help_},
    context_settings={"help_option_names": HELP_NAMES, "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=show_version,
    help="Show the version and exit; with --debug, also those of Python and libraries.",
)
@click.option("--debug", is_flag=True, is_eager=True, help="Show the traceback of an error.")
@click.option(
    "--color",
    type=Word(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to colour text; `auto` honours NO_COLOR and FORCE_COLOR.",
)
@click.pass_context
def app(context: click.Context, debug: bool, color: Literal["auto", "always", "never"]) -> None:
    """Rewrite, inspect, check and verify ONNX decoders with a key/value cache."""
    if color != "auto":
        context.color = color == "always"


def main() -> None:
    """Run `kvtool` on the arguments of the process and exit."""
    collect_rarely()
    put_off()
    with ending_in_order():
        app(prog_name="kvtool")
