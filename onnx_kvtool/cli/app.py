"""The `kvtool` command: global options and the table of commands."""

from __future__ import annotations

from typing import Literal

import click

from onnx_kvtool import __version__
from onnx_kvtool.cli.group import KvtoolGroup
from onnx_kvtool.cli.lower import lower
from onnx_kvtool.cli.targets import targets
from onnx_kvtool.core.table import Table

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: Table[str, click.Command] = Table("command", [("lower", lower), ("targets", targets)])


_EPILOG = """\b
Exit codes:
  0  done
  1  refused: the model cannot be lowered, or the result differs from it
  2  wrong usage
  3  the input cannot be read
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
    """Rewrite ONNX decoders with a key/value cache for the runtime that has to load them."""
    if color != "auto":
        context.color = color == "always"


def main() -> None:
    """Run `kvtool` on the arguments of the process and exit."""
    app(prog_name="kvtool")
