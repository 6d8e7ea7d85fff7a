"""`kvtool lower` and `kvtool raise`."""

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
from onnx_kvtool.cli.output import refuse_stdout, write_json
from onnx_kvtool.cli.types import Rows, Whole, Word, WrongValue
from onnx_kvtool.core.choices import (
    DEFAULT_OPSET,
    LOWERED_OPSETS,
    NATIVE_OPSET,
    AttentionChoice,
    Bounds,
    ElementType,
    IndexDtype,
    ReportFormat,
    Via,
    words,
)
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import check_verified
from onnx_kvtool.model_io.places import check_result

__all__ = ["lower", "raise_", "refuse_nonsense"]


# What the commands that write a model refuse before anything is read.


def refuse_nonsense(options: dict[str, Any], output_format: str) -> None:
    """Refuse options that contradict each other, and paths that cannot be meant.

    Raises:
        KvtoolError: Before anything is read, and before the libraries that reading needs.
    """
    output = options["output"] or ("-" if options["model"] == "-" else None)
    to_stdout = output == "-" and not options["dry_run"]
    for wrong, message, help in (
        (
            options["in_place"] and options["model"] == "-",
            "`--in-place` needs a file, got standard input",
            "give the result a name with `-o OUT`",
        ),
        (
            options["in_place"] and options["output"] is not None,
            "`--in-place` and `-o` exclude each other",
            "leave one of them out",
        ),
        (
            output == "-" and options["external_data"] is not None,
            "`--external-data` places files beside the output, and standard output has no place",
            "write the model to a file with `-o OUT`",
        ),
    ):
        if wrong:
            raise UsageError(message, help=help)
    check_verified(options["verify"], options)
    if to_stdout:
        refuse_stdout(output_format)
    check_result(
        options["model"],
        options["output"],
        in_place=options["in_place"],
        dry_run=options["dry_run"],
    )


# `kvtool lower`: rewrite a model for an older opset.


_LOWER_EPILOG = """\b
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


@command(epilog=_LOWER_EPILOG)
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

    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.lower import LowerRequest, run

    with shown_progress() as progress:
        report = run(LowerRequest(**options), progress)
    if output_format == "json":
        write_json("lower", report)
    else:
        from onnx_kvtool.report.proof_text import lower_blocks
        from onnx_kvtool.report.text import print_talk

        print_talk(lower_blocks(report, dry_run=options["dry_run"]), color=context.color)
    context.exit(1 if report.refused or report.verification.fails else 0)


# `kvtool raise`: turn the cache updates of a model into TensorScatter.


_RAISE_EPILOG = """\b
Exit codes:
  0  raised, or nothing to raise
  1  refused, different, not run, or not covered (--strict); nothing written
  2  wrong usage, or the output cannot be written
  3  MODEL, or data of it that is needed, cannot be read; with --verify, not run
  4  a bug in kvtool

\b
Examples:
  kvtool raise exported.onnx                       writes exported.raised.onnx
  kvtool raise exported.onnx --opset 25 -o new.onnx
  kvtool raise exported.onnx --dry-run --format json
  kvtool raise growing.onnx --capacity 4096        caches of 4096 rows
  kvtool raise exported.onnx --assume contiguous   positions count up by one
  kvtool raise exported.onnx --assume in-range:cache_position
  kvtool raise exported.onnx --dim s58=1 --static -o one.onnx
  kvtool raise exported.onnx --require-all
  kvtool raise - -o - < exported.onnx > raised.onnx

\b
See also:
  inspect  the caches of a model, and how each is updated
  verify   the comparison by itself, for any two models
  lower    the way back, for runtimes without TensorScatter
"""


@command(
    "raise",
    epilog=_RAISE_EPILOG,
    short_help="Turn cache updates into TensorScatter.",
)
@model_argument
@output_options
@option(
    "--opset",
    type=Whole(min=NATIVE_OPSET),
    default=NATIVE_OPSET,
    show_default=True,
    metavar="N",
    help="Lowest opset of the result; a model that is at a later one stays there.",
    section="What to raise",
)
@option(
    "--capacity",
    type=Rows(),
    metavar="N|NAME",
    help="Rows for caches that grow with every step, which then have a fixed capacity: a number, or"
    " the name of a symbolic dimension.  [default: leave them as they are]",
    section="What to raise",
)
@contrib_option("What to raise", default="standard")
@option(
    "--assume",
    multiple=True,
    metavar="WHAT",
    shell_complete=offers("assumptions"),
    help="Take for granted what the graph does not say: `contiguous[:VALUE]`, `same-dim:A=B`,"
    " `in-range[:VALUE]`, `finite[:VALUE]`, `rotated-rows[:VALUE]`, `unpadded[:VALUE]` or"
    " `covers-past:VALUE`; a refusal names what it lacks. Without a value, for every input."
    " Repeatable.",
    section="What to raise",
)
@option(
    "--attention",
    type=Word(words(AttentionChoice)),
    default="auto",
    show_default=True,
    help="What becomes of attention in many nodes: `keep` leaves it as it is, `sliced` makes it one"
    " over the rows in use, `full` over the whole capacity, `auto` whichever is proven.",
    section="What to raise",
)
@option(
    "--require-all",
    is_flag=True,
    help="Fail and write nothing if any candidate cannot be raised.",
    section="What to raise",
)
@option(
    "--partial",
    is_flag=True,
    help="With --capacity, write the model even if no cache got the capacity.",
    section="What to raise",
)
@dim_option
@static_option
@verify_options
@format_option
@click.pass_context
def raise_(
    context: click.Context,
    /,
    output_format: ReportFormat,
    **options: Any,
) -> None:
    """Turn the cache updates of MODEL into TensorScatter and verify the result.

    MODEL is a path, or `-` for standard input. The result goes to `<stem>.raised.onnx` beside the
    input unless -o or --in-place says otherwise; standard input is answered on standard output. If
    there is nothing to raise, nothing is written.

    Updates written as ScatterND, ScatterElements, Where, sums of masked products or Concat of
    slices are raised where it is proven that they write row s of the update to `start + s` along
    one axis. What cannot be proven stays as it is, and the missing fact is named, so that it can be
    granted with --assume. A model below --opset is brought to it. Nothing else is changed.

    With --capacity, caches that grow by Concat become caches of so many rows. Inputs and outputs
    keep their names; only the axis that grew has the capacity as its size. Where a step begins
    follows from the length of a mask, or from a new input `past_length`, int64 of shape (1). If no
    cache gets the capacity, nothing is written unless --partial is given.

    Attention in many nodes (products, Softmax, masks, repeated heads) becomes one Attention where
    it is proven to compute the same.

    Before it is written, the result runs on the same inputs as MODEL, step by step; one that
    differs is not written.
    """
    refuse_nonsense(options, output_format)

    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.raise_ import RaiseRequest, failed, run

    request = RaiseRequest(**options)
    with shown_progress() as progress:
        report = run(request, progress)
    is_failure = failed(report, request)
    if output_format == "json":
        write_json("raise", report)
    else:
        from onnx_kvtool.report.proof_text import raise_blocks
        from onnx_kvtool.report.text import print_talk

        said = raise_blocks(report, failed=is_failure, dry_run=request.dry_run)
        print_talk(said, color=context.color)
    context.exit(1 if is_failure else 0)
