"""`kvtool help`: the help of a command, as `kvtool COMMAND --help` prints it."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import write_data

__all__ = ["help_"]

_EPILOG = """\b
Examples:
  kvtool help
  kvtool help lower
"""


def _commands(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    parent = ctx.parent
    assert parent is not None and isinstance(parent.command, click.Group)
    names = parent.command.list_commands(parent)
    return [name for name in names if name.startswith(incomplete)]


@command("help", epilog=_EPILOG, short_help="Show the help of a command.")
@click.argument("name", required=False, metavar="[COMMAND]", shell_complete=_commands)
@click.pass_context
def help_(context: click.Context, /, name: str | None) -> None:
    """Show the help of COMMAND, or of kvtool itself."""
    parent = context.parent
    assert parent is not None and isinstance(parent.command, click.Group)
    if name is None:
        write_data(parent.get_help())
        return
    _, found, _ = parent.command.resolve_command(parent, [name])
    if found is not None:
        write_data(found.get_help(found.make_context(name, [], parent, resilient_parsing=True)))
