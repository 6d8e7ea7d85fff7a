"""`kvtool lower`: rewrite a model for an older opset."""

from __future__ import annotations

from typing import Any, Literal

import click

from onnx_kvtool.cli.options import (
    dim_option,
    format_option,
    model_argument,
    output_options,
    verify_options,
)
from onnx_kvtool.cli.output import write_data
from onnx_kvtool.cli.rewriting import refuse_nonsense

__all__ = ["lower"]

_EPILOG = """\b
Examples:
  kvtool lower decoder.onnx                            writes decoder.opset18.onnx
  kvtool lower decoder.onnx --opset 13 -o old.onnx
  kvtool lower decoder.onnx --target onnxruntime@1.17
  kvtool lower decoder.onnx --only TensorScatter       keeps the opset
  kvtool lower decoder.onnx --dry-run --format json
  kvtool lower - -o - < decoder.onnx > lowered.onnx
"""


def _operators(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Split each value at its commas; each operator once, in the order given."""
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise click.BadParameter("an operator name is empty", ctx, param)
    return tuple(dict.fromkeys(names))


@click.command(epilog=_EPILOG)
@model_argument
@output_options
@click.option(
    "--opset",
    type=click.IntRange(11, 23),
    metavar="N",
    help="Opset of the result.  [default: 18, or what --target chooses]",
)
@click.option(
    "--target",
    metavar="RUNTIME[@VERSION]",
    help="Release that must load the result, which chooses its opset, IR version and operators;"
    " without a version the newest that is known. `kvtool targets` lists them.",
)
@click.option(
    "--only",
    multiple=True,
    callback=_operators,
    metavar="OP[,OP...]",
    help="Replace these operators alone and keep the opset of the model; repeatable.",
)
@click.option(
    "--via",
    type=click.Choice(["auto", "scatternd", "scatterelements"]),
    default="auto",
    show_default=True,
    help="Operator that a TensorScatter becomes; `auto` chooses by the width of a row.",
)
@click.option(
    "--index-dtype",
    type=click.Choice(["int64", "int32"]),
    help="Element type of scatter indices; int32 goes with ScatterElements only.",
)
@click.option(
    "--bounds",
    type=click.Choice(["checked", "unchecked"]),
    default="checked",
    show_default=True,
    help="Whether a negative start fails at run time, as TensorScatter does, or wraps.",
)
@dim_option
@verify_options
@format_option
@click.pass_context
def lower(
    context: click.Context,
    /,
    output_format: Literal["text", "json"],
    **options: Any,
) -> None:
    """Rewrite MODEL for an older opset and verify the result.

    MODEL is a path, or `-` for standard input. The result goes to `<stem>.opset<N>.onnx` beside the
    input unless -o or --in-place says otherwise; standard input is answered on standard output.
    All or nothing: if any node cannot be lowered, nothing is written, every refusal is reported,
    and the exit code is 1. Before it is written, the result runs on the same inputs as MODEL, step
    by step; one that differs is not written either.
    """
    refuse_nonsense(options, output_format)

    from onnx_kvtool.commands.lower import LowerRequest, run

    report = run(LowerRequest(**options))
    if output_format == "json":
        from onnx_kvtool.report.json import to_json

        write_data(to_json("lower", report))
    else:
        from onnx_kvtool.report.text import print_lower

        print_lower(report, color=context.color, dry_run=options["dry_run"])
    context.exit(1 if report.refused or report.verification.status == "different" else 0)
