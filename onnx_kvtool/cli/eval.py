"""`kvtool eval`: run a model, a part of it, or one operator, and show what comes out."""

from __future__ import annotations

from typing import Any, Literal

import click

from onnx_kvtool.cli.options import data_format_option, dim_option
from onnx_kvtool.cli.output import write_data

__all__ = ["evaluate"]

_EPILOG = """\b
Examples:
  kvtool eval decoder.onnx --random
  kvtool eval decoder.onnx --random --dim batch=2 --steps 8 --compare onnxruntime
  kvtool eval decoder.onnx --input input_ids='[[1, 2, 3]]' --random --trace
  kvtool eval decoder.onnx --node '#5' --random --seed 7 --save node.npz
  kvtool eval --op TensorScatter --input past_cache='[[[0], [0]]]' --input update='[[[1]]]'
"""

_RUNTIMES = click.Choice(["reference", "onnxruntime"])


def _pairs(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Split each value at its first equals sign."""
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{value!r} is not {param.metavar}", ctx, param)
        pairs.append((name, text))
    return tuple(pairs)


@click.command("eval", epilog=_EPILOG, short_help="Run a model, a part of it, or one operator.")
@click.argument("model", type=click.Path(allow_dash=True), metavar="[MODEL]", required=False)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    callback=_pairs,
    metavar="NAME=SPEC",
    help="Give a value: a .npy file, file.npz:KEY, a .pb file with a TensorProto, or JSON such as"
    " `[[1, 2], [3, 4]]`; an element type may stand in front, as in `float16:[1, 2]`; repeatable.",
)
@click.option(
    "--random",
    is_flag=True,
    help="Draw the inputs that are not given, so that they respect the cache protocol.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of what is drawn.",
)
@dim_option
@click.option("--node", metavar="NAME", help="Fetch the outputs of this node; `#3` is the fourth.")
@click.option(
    "--fetch",
    multiple=True,
    metavar="VALUE",
    help="Fetch this value of the main graph; repeatable.  [default: the graph outputs]",
)
@click.option("--trace", is_flag=True, help="Show each node that runs: its outputs, its time.")
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Decode steps after the first run, with each present fed back to its past.",
)
@click.option(
    "--runtime", type=_RUNTIMES, default="reference", show_default=True, help="What runs it."
)
@click.option(
    "--compare",
    type=_RUNTIMES,
    help="Run it there as well, on the same inputs, and compare; exit code 1 if they differ.",
)
@click.option("--op", metavar="OP", help="Run this operator of the default domain, not a model.")
@click.option(
    "--opset",
    type=click.IntRange(min=1),
    metavar="N",
    help="Opset of the operator.  [default: the one that brought its newest version]",
)
@click.option(
    "--attr",
    "attributes",
    multiple=True,
    callback=_pairs,
    metavar="NAME=VALUE",
    help="Give the operator an attribute; repeatable.",
)
@click.option("--save", metavar="FILE.npz", help="Write the values fetched to this file.")
@data_format_option
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    output_format: Literal["text", "json"],
    **options: Any,
) -> None:
    """Run MODEL, a part of it, or one operator, and show what comes out.

    MODEL is a path, or `-` for standard input; or name an operator with --op. Inputs are given by
    name, and so may be any other value of the main graph, which then is not computed. The
    reference runtime is strict: what the specification calls an error, or leaves undefined, fails
    with the node and the place in its inputs, and exit code 1.
    """
    from onnx_kvtool.commands.evaluate import EvalRequest, run

    report = run(EvalRequest(**options))
    if output_format == "json":
        from onnx_kvtool.report.json import to_json

        write_data(to_json("eval", report))
    else:
        from onnx_kvtool.report.text import print_eval

        print_eval(report, color=context.color)
    found = report.comparison
    context.exit(1 if found is not None and found.status == "different" else 0)
