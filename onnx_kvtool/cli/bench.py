"""`kvtool bench`: run decoders in turns, as a good host would."""

from __future__ import annotations

from typing import Any

import click

from onnx_kvtool.cli.command import command, offers
from onnx_kvtool.cli.options import (
    data_format_option,
    dim_option,
    number_option,
    seed_option,
)
from onnx_kvtool.cli.output import write_json
from onnx_kvtool.core.choices import ReportFormat
from onnx_kvtool.model_io.places import check_source

__all__ = ["bench"]

_EPILOG = """\b
Exit codes:
  0  every model ran
  1  a model did not
  2  wrong usage
  3  a model cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool bench decoder.onnx other.onnx --prompt 16 --tokens 8
  kvtool bench decoder.onnx --prompt 8 --tokens 4 --context 24 --threads 1
  kvtool bench decoder.onnx --prompt 8 --tokens 4 --batch 8 --format json

\b
See also:
  inspect  what caches cost, and what a step has to move at least
  verify   whether two models compute the same
"""


@command(epilog=_EPILOG, short_help="Run decoders in turns, and say what each takes.")
@click.argument(
    "models",
    type=click.Path(readable=False),
    metavar="MODEL...",
    nargs=-1,
    required=True,
    shell_complete=offers("models"),
)
@number_option("--prompt", "Tokens of the prompt.", "Work", default=64)
@number_option(
    "--tokens", "Tokens to make, that of the prompt among them.", "Work", least=2, default=32
)
@number_option(
    "--context",
    "Rows that stand before the steps; beyond the prompt they are zeros.  [default: the prompt]",
    "Work",
)
@number_option("--batch", "Sequences.", "Work", default=1)
@seed_option("For the tokens of the prompt.", "Work")
@number_option("--rounds", "How often each model does it, in turns.", "Runs", default=3)
@number_option("--threads", "Threads that a node may use.  [default: one for each core]", "Runs")
@dim_option
@data_format_option
@click.pass_context
def bench(
    context: click.Context,
    /,
    output_format: ReportFormat,
    **options: Any,
) -> None:
    """Run decoders of any form in onnxruntime, in turns, and say what each takes.

    MODEL is a path; the first one is what the others are compared with. Each runs in a process of
    its own, as a good host would run it: a cache of fixed size is written in place where the model
    allows it, what grows is handed on without a copy, and GroupQueryAttention gets one buffer for
    past and present.

    Shown are the time to the first token, the time of a step, tokens per second and the most memory
    that the model took, and whether all chose the same tokens. Prompts are drawn; weights may be
    random, if their sizes are true.
    """
    for model in options["models"]:
        check_source(model)

    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.bench import BenchRequest, run

    # Others are timed: a display with a thread of its own would take part of a core.
    with shown_progress(enabled=False) as progress:
        report = run(BenchRequest(**options), progress)
    if output_format == "json":
        write_json("bench", report)
    else:
        from onnx_kvtool.report.inspect_text import bench_blocks
        from onnx_kvtool.report.text import print_blocks

        print_blocks(bench_blocks(report), color=context.color)
    context.exit(1 if report.failed else 0)
