"""`kvtool infer`: types and shapes of every value, with the reason for every unknown."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import refuse_stdout, show, shown_progress
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import InferRequest
from onnx_kvtool.model_io.places import check_output, check_source

_EPILOG = """\b
Exit codes:
  0  done, without a conflict
  1  a conflict, or with --strict an unknown value; nothing was written
  2  wrong usage, or the output cannot be written
  3  MODEL cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool infer decoder.onnx                     shows unknown values, and why
  kvtool infer decoder.onnx -o annotated.onnx   writes the shape of every value
  kvtool infer decoder.onnx --dim batch=2 --dim sequence_len=8 -o fixed.onnx
  kvtool infer decoder.onnx --strict --format json
  kvtool infer - -o - < decoder.onnx > annotated.onnx

\b
See also:
  inspect  show the caches instead of every value
  eval     run the model, and show the values
"""


@command(
    InferRequest, epilog=_EPILOG, short_help="Infer the type and shape of every value of a model."
)
def infer(context: click.Context, request: InferRequest) -> None:
    """Infer the type and shape of every value of MODEL, and explain unknown ones.

    MODEL is a path, or `-` for standard input. kvtool reads no weights and runs nothing. A size is
    known if it is fixed, or an expression of symbolic dimensions that the inputs declare. For an
    unknown value, kvtool names the first node that made it unknown, and the reason. If the file
    declares another shape than kvtool infers, kvtool shows both, with the nodes that lead to the
    inferred one, and writes nothing.
    """
    model, to_stdout = path_in(request.model), request.output == "-"
    if to_stdout:
        refuse_stdout(request.output_format)
    check_source(model, remote=True)
    check_output(model, request.output, "name another file with `-o OUT`")

    from onnx_kvtool.commands.infer import run

    with shown_progress() as progress:
        report = run(request, progress)
    show(context, report, request.output_format, talks=to_stdout)
    context.exit(1 if report.failed else 0)
