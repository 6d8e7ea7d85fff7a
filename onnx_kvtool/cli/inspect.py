"""`kvtool inspect`: show what a model keeps from step to step, and what it costs."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import SUFFIXES, report_place, show, shown_progress, stem_of
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import InspectRequest
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.model_io.places import check_source

_EPILOG = """\b
Exit codes:
  0  done
  2  wrong usage, or the output cannot be written
  3  MODEL cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool inspect decoder.onnx                 summary and cache table
  kvtool inspect decoder.onnx --dim batch=4   bytes of four sequences
  kvtool inspect decoder.onnx --capacity 32768 --memory 24GiB
  kvtool inspect decoder.onnx --nodes         every cache and every node
  kvtool inspect decoder.onnx --format html -o decoder.html
  kvtool inspect decoder.onnx --format mermaid
  kvtool inspect - --format json < decoder.onnx

\b
See also:
  infer  infer the shape of every value
  check  find mistakes in models
  raise  turn cache updates into TensorScatter
"""


@command(InspectRequest, epilog=_EPILOG)
def inspect(context: click.Context, request: InspectRequest) -> None:
    """Show the caches of MODEL and what they cost.

    MODEL is a path, or `-` for standard input. kvtool shows the opsets, inputs, outputs and
    operators, and each cache: what updates it, its layout, the bytes for each token, and whether a
    runtime can write it in place. One KiB is 1024 bytes.

    kvtool reads no weights, and their files may be missing. It runs nothing. It also shows models
    that onnx's checker rejects. A `-` in a table means unknown. --dim sets symbolic dimensions, so
    that kvtool can compute totals.

    --capacity and --cache-dtype show what other caches would cost. --memory shows how many
    sequences fit. --bandwidth shows how many tokens a second the memory allows.
    """
    model, output_format = path_in(request.model), request.output_format
    if request.nodes and output_format in ("dot", "mermaid"):
        raise UsageError(
            f"`--nodes` lists nodes, and `--format {output_format}` draws only caches",
            help="leave one of them out",
        )
    check_source(model, remote=True)
    name = f"{stem_of(model)}.inspect{SUFFIXES[output_format]}"
    request = request.replace(output=report_place(request.output, model, name))

    from onnx_kvtool.commands.inspect import run

    with shown_progress() as progress:
        report = run(request, progress)
    show(context, report, output_format, request.output)
