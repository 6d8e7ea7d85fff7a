"""`kvtool lower`: rewrite a model for an older opset."""

from __future__ import annotations

from typing import Any

import click

from onnx_kvtool.cli.command import command, offers, option
from onnx_kvtool.cli.options import (
    contrib_option,
    dim_option,
    format_option,
    model_argument,
    output_options,
    static_option,
    verify_options,
)
from onnx_kvtool.cli.output import write_json
from onnx_kvtool.cli.rewriting import refuse_nonsense
from onnx_kvtool.cli.types import Whole, Word
from onnx_kvtool.cli.wrong_usage import WrongValue
from onnx_kvtool.core.choices import (
    DEFAULT_OPSET,
    LOWERED_OPSETS,
    NATIVE_OPSET,
    Bounds,
    ElementType,
    IndexDtype,
    ReportFormat,
    Via,
    words,
)

__all__ = ["lower"]

_EPILOG = """\b
Exit codes:
  0  lowered; with --dry-run, it could be
  1  refused, different, or with --strict not covered; nothing was written
  2  wrong usage, or the output cannot be written
  3  MODEL, or data of it that is needed, cannot be read; with --verify, not run
  4  a bug in kvtool

\b
Examples:
  kvtool lower decoder.onnx                        writes decoder.opset18.onnx
  kvtool lower decoder.onnx --opset 13 -o old.onnx
  kvtool lower decoder.onnx --target onnxruntime@1.17
  kvtool lower decoder.onnx --only TensorScatter   keeps the opset
  kvtool lower decoder.onnx --via scatterelements -o scatter.onnx
  kvtool lower decoder.onnx --dim batch=1 --dim sequence_len=1 --static
  kvtool lower decoder.onnx --dry-run --format json
  kvtool lower - -o - < decoder.onnx > lowered.onnx

\b
See also:
  targets  the releases that --target knows
  verify   the comparison by itself, for any two models
  raise    the way back
"""


def _operators(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Split each value at its commas; each operator once, in the order given."""
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise WrongValue(", ".join(values), "operators with one comma between them", ctx, param)
    return tuple(dict.fromkeys(names))


@command(epilog=_EPILOG)
@model_argument
@output_options
@option(
    "--opset",
    type=Whole(
        LOWERED_OPSETS[0],
        LOWERED_OPSETS[-1],
        above=f"`kvtool raise` goes the other way, to opset {NATIVE_OPSET} or later",
    ),
    metavar="N",
    help=f"Opset of the result.  [default: {DEFAULT_OPSET}, or what --target chooses]",
    section="What to lower",
)
@option(
    "--target",
    metavar="RUNTIME[@VERSION]",
    shell_complete=offers("targets"),
    help="Release that must load the result, which chooses its opset, IR version and operators;"
    " without a version the newest that is known. `kvtool targets` lists them.",
    section="What to lower",
)
@option(
    "--only",
    multiple=True,
    callback=_operators,
    shell_complete=offers("replaceable"),
    metavar="OP[,OP...]",
    help="Replace these operators alone and keep the opset of the model; repeatable.",
    section="What to lower",
)
@option(
    "--via",
    type=Word(words(Via)),
    default="auto",
    show_default=True,
    help="Operator that a TensorScatter becomes; `auto` chooses by the width of a row.",
    section="How",
)
@option(
    "--index-dtype",
    type=Word(words(IndexDtype)),
    help="Element type of scatter indices; int32 goes with ScatterElements only.",
    section="How",
)
@option(
    "--bounds",
    type=Word(words(Bounds)),
    default="checked",
    show_default=True,
    help="Whether a negative start fails at run time, as TensorScatter does, or wraps.",
    section="How",
)
@contrib_option(
    "How",
    "; with --target, those that the release does not import are written so, else they stay",
)
@option(
    "--element-type",
    type=Word(words(ElementType)),
    help="Put this type in the place of bfloat16, which opsets 11 and 12 and many runtimes lack: in"
    " weights, inputs, outputs and caches. A constant that float16 does not hold is refused.",
    section="How",
)
@dim_option
@static_option
@verify_options
@format_option
@click.pass_context
def lower(
    context: click.Context,
    /,
    output_format: ReportFormat,
    **options: Any,
) -> None:
    """Rewrite MODEL for an older opset and verify the result.

    MODEL is a path, or `-` for standard input. The result goes to `<stem>.opset<N>.onnx` beside the
    input, with --target to `<stem>.<runtime>-<version>.onnx`, unless -o or --in-place says
    otherwise; standard input is answered on standard output.

    Every operator that the opset lacks is written with operators that it has, in the main graph, in
    bodies and in functions: TensorScatter as ScatterND or ScatterElements, Attention,
    RMSNormalization and RotaryEmbedding as what they are made of. The other nodes, and the names
    and types of inputs and outputs, stay as they are. Nothing is optimised, but with --dim sizes
    are fixed: inputs and outputs declare the numbers, and what follows from them is folded.

    All or nothing: if any node cannot be lowered, nothing is written and every refusal is reported
    with its reason. Before it is written, the result runs on the same inputs as MODEL, step by
    step; one that differs is not written either.
    """
    refuse_nonsense(options, output_format)

    from onnx_kvtool.cli.progress import shown_progress
    from onnx_kvtool.commands.lower import LowerRequest, run

    with shown_progress() as progress:
        report = run(LowerRequest(**options), progress)
    if output_format == "json":
        write_json("lower", report)
    else:
        from onnx_kvtool.report.lower_text import blocks
        from onnx_kvtool.report.text import print_talk

        print_talk(blocks(report, dry_run=options["dry_run"]), color=context.color)
    context.exit(1 if report.refused or report.verification.fails else 0)
