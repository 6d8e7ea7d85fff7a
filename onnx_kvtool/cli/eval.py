"""`kvtool eval`: run a model, a part of it, or one operator, and show the results."""

from __future__ import annotations

from typing import Any

import click

from onnx_kvtool.cli.command import command, offers, option
from onnx_kvtool.cli.options import (
    data_format_option,
    dim_option,
    number_option,
    seed_option,
)
from onnx_kvtool.cli.output import report_place, stem_of, write_json
from onnx_kvtool.cli.types import ReportFile, Seconds, Size, Word, WrongValue
from onnx_kvtool.core.choices import ReportFormat, RuntimeName, words
from onnx_kvtool.model_io.places import check_source

__all__ = ["evaluate"]

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

_RUNTIMES = Word(words(RuntimeName))


def _pairs(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Split each value at its first equals sign."""
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals):
            raise WrongValue(value, f"`{param.metavar}`", ctx, param)
        pairs.append((name, text))
    return tuple(pairs)


@command("eval", epilog=_EPILOG, short_help="Run a model, a part of it, or one operator.")
@click.argument(
    "model",
    type=click.Path(allow_dash=True, readable=False),
    metavar="[MODEL]",
    required=False,
    shell_complete=offers("models"),
)
@option(
    "--input",
    "inputs",
    multiple=True,
    callback=_pairs,
    metavar="NAME=SPEC",
    shell_complete=offers("inputs"),
    help="Set the value NAME to a .npy file, file.npz:KEY, a .pb file with a TensorProto, or JSON"
    " such as `[[1, 2], [3, 4]]`, with an element type as in `float16:[1, 2]` if you like."
    " `null` omits an optional input. Repeatable.",
    section="Input",
)
@option(
    "--random",
    is_flag=True,
    help="Use random values for all other inputs. They respect the cache protocol: write positions"
    " are in range.",
    section="Input",
)
@seed_option("Seed of the random values.")
@dim_option
@option(
    "--node",
    metavar="NAME",
    shell_complete=offers("nodes"),
    help="Fetch the outputs of this node; `#3` is the fourth.",
    section="What to run",
)
@option(
    "--fetch",
    multiple=True,
    metavar="VALUE",
    shell_complete=offers("values"),
    help="Fetch this value of the main graph; repeatable.  [default: the graph outputs]",
    section="What to run",
)
@option(
    "--trace",
    is_flag=True,
    help="Show the outputs and the time of each node.",
    section="Output",
)
@number_option(
    "--steps",
    "Decode steps after the first run, with each present fed back to its past.",
    "What to run",
    least=0,
    default=0,
)
@option(
    "--runtime",
    type=_RUNTIMES,
    default="reference",
    show_default=True,
    help="Runtime that runs the model.",
    section="Runtime",
)
@option(
    "--compare",
    type=_RUNTIMES,
    help="Run this runtime on the same inputs, too, and compare. Exit with 1 if they differ.",
    section="Runtime",
)
@option(
    "--time-limit",
    type=Seconds(),
    metavar="SECONDS",
    help="Stop after this time; needs Linux.  [default: 600]",
    section="Runtime",
)
@option(
    "--memory-limit",
    type=Size(),
    metavar="SIZE",
    help="Stop a run that takes more memory than this, such as `2GiB`; needs Linux.  [default:"
    " three quarters of the free memory]",
    section="Runtime",
)
@option(
    "--op",
    metavar="OP",
    shell_complete=offers("operators"),
    help="Run this operator of the default domain instead of a model.",
    section="A single operator",
)
@number_option(
    "--opset",
    "Opset of the operator.  [default: the opset of its newest version]",
    "A single operator",
)
@option(
    "--attr",
    "attributes",
    multiple=True,
    callback=_pairs,
    metavar="NAME=VALUE",
    help="Set an attribute of the operator; repeatable.",
    section="A single operator",
)
@option(
    "--save",
    metavar="FILE.npz",
    type=ReportFile(),
    help="Write the fetched values to this file, or to a directory as `<stem>.npz`.",
    section="Output",
)
@data_format_option
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    output_format: ReportFormat,
    **options: Any,
) -> None:
    """Run MODEL, a part of it, or one operator, and show the results.

    MODEL is a path, or `-` for standard input. With --op, kvtool runs an operator instead. --input
    sets an input by name. It may also set another value of the main graph, and kvtool then does not
    compute that value. Without --fetch and --node, kvtool shows the outputs of the graph: type,
    shape, minimum and maximum, and the elements of small outputs.

    The reference runtime is strict. It fails where the specification names an error or leaves the
    result undefined, and reports the node and the place in its inputs. It is made to be right, not
    to be fast.
    """
    if options["model"] is not None and options["op"] is None:
        check_source(options["model"])
    subject = options["op"] or options["model"] or ""
    name = "values" if subject in ("", "-") else stem_of(subject)
    options["save"] = report_place(options["save"], None, f"{name}.npz")

    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.evaluate import EvalRequest, run

    with shown_progress() as progress:
        report = run(EvalRequest(**options), progress)
    if output_format == "json":
        write_json("eval", report)
    else:
        from onnx_kvtool.report.eval_text import blocks, remarks
        from onnx_kvtool.report.text import print_blocks, print_talk

        print_blocks(blocks(report), color=context.color)
        print_talk(remarks(report), color=context.color)
    found = report.comparison
    context.exit(1 if found is not None and found.status == "different" else 0)
