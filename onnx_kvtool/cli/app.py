"""The `kvtool` command: global options and the table of commands."""

from __future__ import annotations

from typing import Literal

import click

from onnx_kvtool.cli.bench import bench
from onnx_kvtool.cli.check import check
from onnx_kvtool.cli.command import HELP_NAMES, show_version
from onnx_kvtool.cli.diff import diff
from onnx_kvtool.cli.eval import evaluate
from onnx_kvtool.cli.facts import help_, ops, rule, targets
from onnx_kvtool.cli.group import KvtoolGroup, ending_in_order
from onnx_kvtool.cli.infer import infer
from onnx_kvtool.cli.inspect import inspect
from onnx_kvtool.cli.merge import merge
from onnx_kvtool.cli.print_ import print_
from onnx_kvtool.cli.rewriting import lower, raise_
from onnx_kvtool.cli.types import Word
from onnx_kvtool.cli.verify import verify
from onnx_kvtool.core.machine import collect_rarely
from onnx_kvtool.core.table import Table
from onnx_kvtool.guard.early_sympy import put_off

COMMANDS: Table[str, click.Command] = Table(
    "command",
    [
        ("check", check),
        ("diff", diff),
        ("eval", evaluate),
        ("infer", infer),
        ("inspect", inspect),
        ("lower", lower),
        ("merge", merge),
        ("ops", ops),
        ("print", print_),
        ("raise", raise_),
        ("rule", rule),
        ("targets", targets),
        ("bench", bench),
        ("verify", verify),
    ],
)


_PURPOSES = {
    "Rewrite a model": ("lower", "raise"),
    "Look at a model": ("inspect", "infer", "check", "merge", "diff", "print"),
    "Run a model": ("eval", "verify", "bench"),
    "Ask what kvtool knows": ("ops", "rule", "targets", "help"),
}

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
    purposes=_PURPOSES,
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
