"""`kvtool verify`: run two models on the same inputs and compare."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import show, shown_progress
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import VerifyRequest
from onnx_kvtool.model_io.places import check_source

_EPILOG = """\b
Exit codes:
  0  the models are equal
  1  they differ; with --strict also: something was not covered
  2  wrong usage
  3  a model cannot be read or run
  4  a bug in kvtool

\b
Examples:
  kvtool verify decoder.onnx decoder.opset18.onnx
  kvtool verify decoder.onnx other.onnx --cases 12 --steps 5 --seed 7
  kvtool verify decoder.onnx other.onnx --rtol 1e-3 --atol 1e-3
  kvtool verify decoder.onnx other.onnx --runtime reference --format json

\b
See also:
  lower, raise  rewrite a model, and verify the result
  eval          run one model in two runtimes and compare
"""

_EXIT_CODES = {"equal": 0, "different": 1, "unrunnable": 3}


@command(
    VerifyRequest,
    epilog=_EPILOG,
    short_help="Run two models on the same inputs and compare every output.",
)
def verify(context: click.Context, request: VerifyRequest) -> None:
    """Run the models A and B on the same inputs and compare every output.

    A is the reference, B the model to verify; either may be `-` for standard input. Both need
    inputs and outputs of the same names.

    kvtool draws random inputs in several shapes: a prefill, then decode steps with each present fed
    back to its past. Outputs that only move data must be bit-identical. Computed outputs must agree
    within a tolerance. If the models differ, kvtool names the first value that differs. Equal
    outputs on these inputs do not prove equality for all inputs; --cases and --steps test more.
    """
    check_source(path_in(request.a))
    check_source(path_in(request.b))

    from onnx_kvtool.commands.verify import run

    with shown_progress() as progress:
        report = run(request, progress)
    show(context, report, request.output_format)
    context.exit(1 if report.insufficient else _EXIT_CODES[report.status])
