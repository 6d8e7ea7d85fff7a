"""`kvtool diff`: show what changed between two models."""

from __future__ import annotations

import os
import re

import click

from onnx_kvtool.cli.command import KvtoolCommand, command
from onnx_kvtool.cli.output import SUFFIXES, report_place, show, shown_progress
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import DiffRequest
from onnx_kvtool.model_io.places import NOTHING, check_source

_EPILOG = """\b
Exit codes:
  0  the models are the same
  1  they differ; with --fail-on, in one of these parts
  2  wrong usage, or the output cannot be written
  3  a model, or external data that is needed, cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool diff old.onnx new.onnx
  kvtool diff old.onnx new.onnx --weights none
  kvtool diff old.onnx new.onnx --fail-on interface,caches,opset
  kvtool diff old.onnx new.onnx --format markdown --exit-zero
  kvtool diff old.onnx new.onnx --format html -o changes.html
  kvtool diff - new.onnx --format json < old.onnx

\b
See also:
  print   print a model as text, for git's own diff
  verify  compare what two models compute
"""

_GIT = "onnx_kvtool.git"
_HEX = re.compile(r"\.|[0-9a-f]{4,64}")
_MODE = re.compile(r"\.|[0-7]{6}")


class _DiffCommand(KvtoolCommand):
    """A command that git may call as an external diff driver."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take git's seven arguments, or nine for a file that was renamed, for OLD and NEW.

        They are: path, old file, its hash and mode, new file, its hash and mode, and perhaps the
        new path and what git says of the renaming.
        """
        for count in (9, 7):
            given = args[-count:]
            if len(args) >= count and _are_from_git(given):
                ctx.meta[_GIT] = (given[0], given[7] if count == 9 else given[0])
                args = [*args[:-count], *map(_from_git, (given[1], given[4]))]
                break
        return super().parse_args(ctx, args)


def _are_from_git(given: list[str]) -> bool:
    hashes, modes = (given[2], given[5]), (given[3], given[6])
    return all(map(_HEX.fullmatch, hashes)) and all(map(_MODE.fullmatch, modes))


def _from_git(path: str) -> str:
    """Return the path of a file, or the one name for no file, which is another on Windows."""
    return NOTHING if path.lower() in (NOTHING, os.devnull) else path


@command(
    DiffRequest,
    cls=_DiffCommand,
    epilog=_EPILOG,
    short_help="Show what changed between two models.",
)
def diff(context: click.Context, request: DiffRequest) -> None:
    """Show what changed from the model OLD to the model NEW.

    Either may be `-` for standard input. kvtool compares opsets, inputs and outputs, metadata,
    caches, operators, nodes with their attributes, weights, functions and bodies. It matches nodes
    by what they compute and by name. Their order does not matter, so a model that was sorted or
    saved again is the same. Values with a new name are shown as renamed. Changes that repeat in
    every layer appear once.

    kvtool compares weights by digest, and then measures how much the changed ones differ. It reads
    a few megabytes at a time. To use kvtool as the external diff driver of git, run
    `git config diff.onnx.command "kvtool diff"`. kvtool then takes git's arguments, reports a
    version that is not a model, and exits with 0.
    """
    names = context.meta.get(_GIT)
    for model in () if names else (request.old, request.new):
        check_source(path_in(model), remote=True)
    name = f"kvtool-diff{SUFFIXES[request.output_format]}"
    request = request.replace(output=report_place(request.output, None, name))

    from onnx_kvtool.commands.diff import run, run_for_git

    with shown_progress() as progress:
        report = run_for_git(request, names, progress) if names else run(request, progress)
    show(context, report, request.output_format, request.output)
    context.exit(0 if names or request.exit_zero else report.exit_code)
