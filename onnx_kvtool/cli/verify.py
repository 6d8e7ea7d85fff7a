"""`kvtool verify`: run two models on the same inputs and compare."""

from __future__ import annotations

import math
from typing import Any, Literal

import click

from onnx_kvtool.cli.options import dim_option
from onnx_kvtool.cli.output import write_data

__all__ = ["verify"]

_EPILOG = """\b
Examples:
  kvtool verify decoder.onnx decoder.opset18.onnx
  kvtool verify decoder.onnx other.onnx --cases 12 --steps 5 --seed 7
  kvtool verify decoder.onnx other.onnx --rtol 1e-3 --atol 1e-3
  kvtool verify decoder.onnx other.onnx --runtime reference --format json
"""

_EXIT_CODES = {"equal": 0, "different": 1, "unrunnable": 3}


def _tolerance(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse what is no number: every difference lies within an infinite tolerance."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise click.BadParameter(f"{value} is no number that is not negative", ctx, param)
    return value


@click.command(
    epilog=_EPILOG, short_help="Run two models on the same inputs and compare every output."
)
@click.argument("a", type=click.Path(allow_dash=True), metavar="A")
@click.argument("b", type=click.Path(allow_dash=True), metavar="B")
@click.option(
    "--cases",
    type=click.IntRange(min=1),
    metavar="N",
    help="Sets of inputs, of different shapes.  [default: 4]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    metavar="N",
    help="Decode steps after the first run of each case, the caches fed back.  [default: 2]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the inputs.",
)
@dim_option
@click.option(
    "--runtime",
    type=click.Choice(["auto", "reference", "onnxruntime"]),
    default="auto",
    show_default=True,
    help="What runs both; `auto` takes onnxruntime where it runs both, else the reference.",
)
@click.option(
    "--rtol",
    type=float,
    callback=_tolerance,
    metavar="X",
    help="Relative tolerance for what is computed.  [default: that of the element types]",
)
@click.option(
    "--atol",
    type=float,
    callback=_tolerance,
    metavar="X",
    help="Absolute tolerance for what is computed.  [default: that of the element types]",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Print text, or JSON; both on standard output.",
)
@click.pass_context
def verify(
    context: click.Context,
    /,
    output_format: Literal["text", "json"],
    **options: Any,
) -> None:
    """Run the models A and B on the same inputs and compare every output.

    A is the model that is right, B the one that is judged; either may be `-` for standard input.
    Inputs are drawn from a seed in several shapes: a prefill, then decode steps with each present
    fed back to its past. What only moves data has to agree bit for bit, what is computed within a
    tolerance for its type. The exit code is 0 for equal models, 1 for different ones, and 3 if
    they cannot be read or run.
    """
    from onnx_kvtool.commands.verify import VerifyRequest, run

    report = run(VerifyRequest(**options))
    if output_format == "json":
        from onnx_kvtool.report.json import to_json

        write_data(to_json("verify", report))
    else:
        from onnx_kvtool.report.text import print_verify

        print_verify(report, color=context.color)
    context.exit(_EXIT_CODES[report.status])
