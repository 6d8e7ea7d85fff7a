"""`kvtool print`: print a model as text in onnx's own syntax."""

from __future__ import annotations

from typing import Any

import click

from onnx_kvtool.cli.command import command, option
from onnx_kvtool.cli.options import data_format_option, model_argument, timeout_option
from onnx_kvtool.cli.output import report_place, stem_of, write_report
from onnx_kvtool.cli.types import ReportFile, Word
from onnx_kvtool.core.choices import PrintedWeights, ReportFormat, words
from onnx_kvtool.model_io.places import check_source

__all__ = ["print_"]

_EPILOG = """\b
Exit codes:
  0  done
  2  wrong usage, or the output cannot be written
  3  MODEL, or external data of it, cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool print decoder.onnx
  kvtool print decoder.onnx -o decoder.txt
  kvtool print decoder.onnx --weights none
  kvtool print decoder.onnx --format json
  kvtool print - < decoder.onnx

\b
See also:
  diff     show what changed between two models
  inspect  show a summary and the caches
"""


@command("print", epilog=_EPILOG, short_help="Print a model as text that `git diff` can compare.")
@model_argument
@option(
    "--weights",
    type=Word(words(PrintedWeights)),
    default="digest",
    show_default=True,
    help="Show a digest of every weight, only of weights in the file itself, or of none.",
)
@data_format_option
@option(
    "-o",
    "--output",
    type=ReportFile(allow_dash=True),
    metavar="FILE",
    help="Write the text to this file, or to a directory as `<stem>.txt`.  [default: standard"
    " output]",
)
@option(
    "--textconv",
    is_flag=True,
    help="For git: if the file is not a model, print the reason as a comment and exit with 0.",
)
@timeout_option
@click.pass_context
def print_(context: click.Context, /, output_format: ReportFormat, **options: Any) -> None:
    """Print MODEL as text that `git diff` can compare, in onnx's own syntax.

    MODEL is a path, or `-` for standard input. Equal models give equal text. The field or file that
    stores the weights does not matter, nor does the order of imports, metadata, initializers and
    attributes. Nodes keep the order of the file. kvtool shows large weights as digests and reads a
    few megabytes at a time. If a data file is missing, kvtool shows the location of the data.

    To see changes of models in `git diff`, write `*.onnx diff=onnx` to .gitattributes, and set
    `diff.onnx.textconv` to `kvtool print --textconv` in git's configuration. A damaged file does
    not stop git.
    """
    model = options["model"]
    if not options["textconv"]:
        check_source(model, remote=True)
    suffix = ".json" if output_format == "json" else ".txt"
    options["output"] = report_place(options["output"], model, f"{stem_of(model)}{suffix}")

    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.print_ import PrintRequest, run
    from onnx_kvtool.report.blocks import Line
    from onnx_kvtool.report.text import print_talk

    request = PrintRequest(**options)
    with shown_progress() as progress:
        printed = run(request, progress)
    if output_format == "json":
        from onnx_kvtool.report.json import to_json

        write_report(to_json("print", printed), request.output)
    else:
        write_report("\n".join(printed.lines), request.output)
    print_talk([Line("note", note, "yellow") for note in printed.notes], color=context.color)
