"""The `kvtool` command: global options and the table of commands."""

from __future__ import annotations

from typing import Literal

import click

from onnx_kvtool import __version__
from onnx_kvtool.cli.check import check
from onnx_kvtool.cli.eval import evaluate
from onnx_kvtool.cli.group import KvtoolGroup
from onnx_kvtool.cli.infer import infer
from onnx_kvtool.cli.inspect import inspect
from onnx_kvtool.cli.lower import lower
from onnx_kvtool.cli.ops import ops
from onnx_kvtool.cli.raise_ import raise_
from onnx_kvtool.cli.rule import rule
from onnx_kvtool.cli.targets import targets
from onnx_kvtool.cli.verify import verify
from onnx_kvtool.core.table import Table

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: Table[str, click.Command] = Table(
    "command",
    [
        ("check", check),
        ("eval", evaluate),
        ("infer", infer),
        ("inspect", inspect),
        ("lower", lower),
        ("ops", ops),
        ("raise", raise_),
        ("rule", rule),
        ("targets", targets),
        ("verify", verify),
    ],
)


_EPILOG = """\b
Examples:
  kvtool inspect decoder.onnx                           what it keeps, and what that costs
  kvtool lower decoder.onnx --target onnxruntime@1.17   writes decoder.opset20.onnx
  kvtool check models                                   every *.onnx below models
  kvtool COMMAND --help                                 explains a command, with examples

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
    commands=dict(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kvtool", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
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
    app(prog_name="kvtool")
