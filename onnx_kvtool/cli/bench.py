"""`kvtool bench`: run decoders in turns and measure them."""

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
  inspect  show what caches cost, and what a step has to move at least
  verify   compare what two models compute
"""


@command(epilog=_EPILOG, short_help="Measure the time and memory of decoders, in turns.")
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
    "--tokens",
    "Tokens to generate, including the first one from the prompt.",
    "Work",
    least=2,
    default=32,
)
@number_option(
    "--context",
    "Cache rows in use before the steps; rows beyond the prompt are zero.  [default: the prompt]",
    "Work",
)
@number_option("--batch", "Sequences in a batch.", "Work", default=1)
@seed_option("Seed of the prompt tokens.", "Work")
@number_option("--rounds", "How often each model runs, in turns.", "Runs", default=3)
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
    """Measure the time and memory of decoders in onnxruntime, in turns.

    MODEL is a path. kvtool compares all models with the first one. Each model runs in its own
    process, as a good host would run it. A fixed cache is written in place where the model allows
    it, a growing cache is passed on without a copy, and GroupQueryAttention gets one buffer for
    past and present.

    The report shows the time to the first token, the time of a step, tokens per second, peak
    memory, and whether all models chose the same tokens. Prompts are random. Weights may be random
    if their shapes are right.
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
