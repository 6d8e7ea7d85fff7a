"""`kvtool eval`: run a model, a part of it, or one operator, and show the results."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import report_place, show, shown_progress, stem_of
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import EvalRequest
from onnx_kvtool.model_io.places import check_source

_EPILOG = """\b
Exit codes:
  0  the run succeeded; with --compare: the outputs agree
  1  the run failed, reached a limit, a cache was full, or the outputs differ
  2  wrong usage, or the output cannot be written
  3  the model, its data, or the file of a SPEC cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool eval decoder.onnx --random
  kvtool eval decoder.onnx --random --steps 8 --compare onnxruntime
  kvtool eval decoder.onnx --random --dim batch=2 --format json
  kvtool eval decoder.onnx --input input_ids='[[1, 2, 3]]' --random --trace
  kvtool eval decoder.onnx --node '#5' --random --seed 7 --save node.npz
  kvtool eval --op CumSum --attr reverse=1 --input x='[1, 2]' --input axis=0

\b
See also:
  verify  compare two models
  ops     show the inputs and attributes of an operator
"""


@command(
    EvalRequest, "eval", epilog=_EPILOG, short_help="Run a model, a part of it, or one operator."
)
def evaluate(context: click.Context, request: EvalRequest) -> None:
    """Run MODEL, a part of it, or one operator, and show the results.

    MODEL is a path, or `-` for standard input. With --op, kvtool runs an operator instead. --input
    sets an input by name. It may also set another value of the main graph, and kvtool then does not
    compute that value. Without --fetch and --node, kvtool shows the outputs of the graph: type,
    shape, minimum and maximum, and the elements of small outputs.

    The reference runtime is strict. It fails where the specification names an error or leaves the
    result undefined, and reports the node and the place in its inputs. It is made to be right, not
    to be fast.
    """
    model = path_in(request.model)
    if model and request.op is None:
        check_source(model)
    subject = request.op or model
    name = "values" if subject in ("", "-") else stem_of(subject)
    request = request.replace(save=report_place(request.save, None, f"{name}.npz"))

    from onnx_kvtool.commands.evaluate import run

    with shown_progress() as progress:
        report = run(request, progress)
    show(context, report, request.output_format)
    found = report.comparison
    context.exit(1 if found is not None and found.status == "different" else 0)
