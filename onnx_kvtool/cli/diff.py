"""`kvtool diff`: show what changed between two models."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_kvtool.cli.command import KvtoolCommand, offers, option
from onnx_kvtool.cli.options import timeout_option
from onnx_kvtool.cli.output import report_place, write_report
from onnx_kvtool.cli.types import ReportFile, Word
from onnx_kvtool.core.choices import DiffFormat, DiffPart, DiffWeights, words
from onnx_kvtool.model_io.places import NOTHING, check_source

if TYPE_CHECKING:
    from onnx_kvtool.review.report import DiffReport

__all__ = ["diff"]

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

F = TypeVar("F", bound=Callable[..., Any])

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


_SUFFIXES: dict[DiffFormat, str] = {
    "text": ".txt",
    "json": ".json",
    "markdown": ".md",
    "html": ".html",
}
"""Of the file that a report becomes in a directory."""


def _are_from_git(given: list[str]) -> bool:
    hashes, modes = (given[2], given[5]), (given[3], given[6])
    return all(map(_HEX.fullmatch, hashes)) and all(map(_MODE.fullmatch, modes))


def _from_git(path: str) -> str:
    """Return the path of a file, or the one name for no file, which is another on Windows."""
    return NOTHING if path.lower() in (NOTHING, os.devnull) else path


def _parts(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Split a list of parts at its commas."""
    if value is None:
        return None
    return tuple(Word(words(DiffPart)).convert(part, param, ctx) for part in value.split(","))


def _model(name: str) -> Callable[[F], F]:
    return click.argument(
        name,
        type=click.Path(allow_dash=True, readable=False),
        metavar=name.upper(),
        shell_complete=offers("models"),
    )


@click.command(cls=_DiffCommand, epilog=_EPILOG, short_help="Show what changed between two models.")
@_model("old")
@_model("new")
@option(
    "--weights",
    type=Word(words(DiffWeights)),
    default="values",
    show_default=True,
    help="Compare weights and measure the differences (`values`), only find changed ones (`digest`,"
    " or `embedded` for weights in the model files), or ignore weights (`none`).",
)
@option(
    "--fail-on",
    metavar="WHAT[,WHAT...]",
    callback=_parts,
    help="Exit with 1 only if these parts differ: `interface`, `caches`, `opset`, `metadata`,"
    " `nodes`, `weights`, `names`.  [default: all]",
)
@option("--exit-zero", is_flag=True, help="Exit with 0 if the models differ.")
@option(
    "--format",
    "output_format",
    type=Word(words(DiffFormat)),
    default="text",
    show_default=True,
    help="Print text, JSON, Markdown for a pull request, or one self-contained HTML page.",
)
@option(
    "-o",
    "--output",
    type=ReportFile(allow_dash=True),
    metavar="FILE",
    help="Write the report to this file, or to a directory under a name such as"
    " `kvtool-diff.html`.  [default: standard output]",
)
@timeout_option
@click.pass_context
def diff(context: click.Context, /, output_format: DiffFormat, **options: Any) -> None:
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
    for model in () if names else (options["old"], options["new"]):
        check_source(model, remote=True)
    name = f"kvtool-diff{_SUFFIXES[output_format]}"
    options["output"] = report_place(options["output"], None, name)

    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.diff import DiffRequest, run, run_for_git

    request = DiffRequest(**options)
    with shown_progress() as progress:
        report = run_for_git(request, names, progress) if names else run(request, progress)
    _show(context, report, output_format, request.output)
    context.exit(0 if names or request.exit_zero else report.exit_code)


def _show(
    context: click.Context, report: DiffReport, output_format: DiffFormat, output: str | None
) -> None:
    if output_format == "text" and output in (None, "-"):
        from onnx_kvtool.report.diff_text import blocks
        from onnx_kvtool.report.text import print_blocks

        print_blocks(blocks(report), color=context.color)
        return
    write_report(_rendered(report, output_format), output)


def _rendered(report: DiffReport, output_format: DiffFormat) -> str:
    from onnx_kvtool.report import diff_text

    if output_format == "json":
        from onnx_kvtool.report.json import to_json

        return to_json("diff", report)
    if output_format == "markdown":
        return diff_text.to_markdown(report)
    if output_format == "html":
        return diff_text.to_html(report)
    from onnx_kvtool.report.text import text_of_blocks

    return text_of_blocks(diff_text.blocks(report))
