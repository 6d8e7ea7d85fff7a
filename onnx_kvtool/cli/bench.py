"""`kvtool bench`: run decoders in turns and measure them."""

from __future__ import annotations

from typing import cast

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import show
from onnx_kvtool.commands.requests import BenchRequest
from onnx_kvtool.model_io.places import check_source, members

_EPILOG = """\b
Exit codes:
  0  every model ran
  1  a model failed
  2  wrong usage
  3  a model cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool bench decoder.onnx other.onnx --prompt 16 --tokens 8
  kvtool bench decoder.onnx --prompt 8 --tokens 4 --context 24 --threads 1
  kvtool bench decoder.onnx --prompt 8 --tokens 4 --batch 8 --format json
  kvtool bench decoder.onnx other.onnx --prompt 8 --tokens 4 --profile

\b
See also:
  inspect  show what caches cost, and what a step has to move at least
  verify   compare what two models compute
"""


@command(
    BenchRequest, epilog=_EPILOG, short_help="Measure the time and memory of decoders, in turns."
)
def bench(context: click.Context, request: BenchRequest) -> None:
    """Measure the time and memory of decoders in onnxruntime, in turns.

    MODEL is a path, or a directory that `kvtool raise --phases` wrote. kvtool compares all models
    with the first one. Each model runs in its own process, as a good host would run it. A fixed
    cache is written in place where the model allows it, a growing cache is passed on without a
    copy, and GroupQueryAttention gets one buffer for past and present.

    The report shows the time to the first token, the time of a step, tokens per second, peak
    memory, and whether all models chose the same tokens. Prompts are random. Weights may be random
    if their shapes are right.
    """
    for model in cast("tuple[str, ...]", request.models):
        if isinstance(members(model), str):
            check_source(model)

    from onnx_kvtool.commands.bench import run

    report = run(request)  # without a display, whose thread would take part of a core
    show(context, report, request.output_format)
    context.exit(1 if report.failed else 0)
