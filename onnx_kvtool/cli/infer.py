"""`kvtool infer`: types and shapes of every value, with the reason for every unknown."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command, option
from onnx_kvtool.cli.options import data_format_option, dim_option, model_argument, timeout_option
from onnx_kvtool.cli.output import refuse_stdout, write_json
from onnx_kvtool.core.choices import ReportFormat
from onnx_kvtool.model_io.places import check_output, check_source

__all__ = ["infer"]

_EPILOG = """\b
Exit codes:
  0  done, without a conflict
  1  a conflict or, with --strict, an unknown value; nothing was written
  2  wrong usage, or the output cannot be written
  3  MODEL cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool infer decoder.onnx                     what is not known, and why
  kvtool infer decoder.onnx -o annotated.onnx   with the shape of every value
  kvtool infer decoder.onnx --dim batch=2 --dim sequence_len=8 -o fixed.onnx
  kvtool infer decoder.onnx --strict --format json
  kvtool infer - -o - < decoder.onnx > annotated.onnx

\b
See also:
  inspect  what the model keeps, instead of every value
  eval     the values themselves, by running the model
"""


@command(epilog=_EPILOG, short_help="Infer the type and shape of every value of a model.")
@model_argument
@option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True, readable=False),
    metavar="OUT",
    help="Write the model with the type and shape of every value, to a directory as"
    " `<stem>.inferred.onnx`; `-` is standard output.",
)
@dim_option
@timeout_option
@option("--strict", is_flag=True, help="Exit with 1 if something stays unknown.")
@data_format_option
@click.pass_context
def infer(
    context: click.Context,
    /,
    model: str,
    output: str | None,
    dims: dict[str, int],
    strict: bool,
    timeout: float | None,
    output_format: ReportFormat,
) -> None:
    """Infer the type and shape of every value of MODEL, and say why the rest is unknown.

    MODEL is a path, or `-` for standard input. Weights are not read, and nothing is run. A size is
    known when it is a number or an expression over the names that inputs of the model declare. For
    a value that is not known, the node that lost it first is named, and why. Where the file
    declares what cannot be, both shapes and the way to the inferred one are shown, and nothing is
    written.
    """
    to_stdout = output == "-"
    if to_stdout:
        refuse_stdout(output_format)
    check_source(model, remote=True)
    check_output(model, output, "name another file with `-o OUT`")

    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.infer import InferRequest, run

    with shown_progress() as progress:
        report = run(
            InferRequest(model=model, output=output, dims=dims, strict=strict, timeout=timeout),
            progress,
        )
    if output_format == "json":
        write_json("infer", report)
    else:
        from onnx_kvtool.report.facts_text import infer_blocks
        from onnx_kvtool.report.text import print_blocks, print_talk

        (print_talk if to_stdout else print_blocks)(infer_blocks(report), color=context.color)
    context.exit(1 if report.failed else 0)
