"""`kvtool print`: print a model as text in onnx's own syntax."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import SUFFIXES, report_place, shown_progress, stem_of, write_report
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import PrintRequest
from onnx_kvtool.model_io.places import check_source

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


@command(
    PrintRequest,
    "print",
    epilog=_EPILOG,
    short_help="Print a model as text that `git diff` can compare.",
)
def print_(context: click.Context, request: PrintRequest) -> None:
    """Print MODEL as text that `git diff` can compare, in onnx's own syntax.

    MODEL is a path, or `-` for standard input. Equal models give equal text. The field or file that
    stores the weights does not matter, nor does the order of imports, metadata, initializers and
    attributes. Nodes keep the order of the file. kvtool shows large weights as digests and reads a
    few megabytes at a time. If a data file is missing, kvtool shows the location of the data.

    To see changes of models in `git diff`, write `*.onnx diff=onnx` to .gitattributes, and set
    `diff.onnx.textconv` to `kvtool print --textconv` in git's configuration. A damaged file does
    not stop git.
    """
    model = path_in(request.model)
    if not request.textconv:
        check_source(model, remote=True)
    name = f"{stem_of(model)}{SUFFIXES[request.output_format]}"
    request = request.replace(output=report_place(request.output, model, name))

    from onnx_kvtool.commands.print_ import run
    from onnx_kvtool.report.blocks import Line
    from onnx_kvtool.report.json import to_json
    from onnx_kvtool.report.text import print_talk

    with shown_progress() as progress:
        printed = run(request, progress)
    is_json = request.output_format == "json"
    write_report(to_json("print", printed) if is_json else "\n".join(printed.lines), request.output)
    print_talk([Line("note", note, "yellow") for note in printed.notes], color=context.color)
