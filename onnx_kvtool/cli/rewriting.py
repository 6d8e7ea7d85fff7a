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
    """Refuse options that contradict each other, and invalid paths.

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
  0  lowered, or with --dry-run: it can be lowered
  1  refused, different, or with --strict not covered; nothing was written
  2  wrong usage, or the output cannot be written
  3  MODEL or its data cannot be read; with --verify: the models cannot be run
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
  targets  list the releases for --target
  verify   compare any two models
  raise    turn cache updates into TensorScatter again
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
    help="Write the opset, IR version and operators that this release can load. If VERSION is"
    " omitted, the newest one. `kvtool targets` lists all releases.",
    section="What to lower",
)
@option(
    "--only",
    multiple=True,
    callback=_operators,
    shell_complete=offers("replaceable"),
    metavar="OP[,OP...]",
    help="Replace only these operators and keep the opset of the model; repeatable.",
    section="What to lower",
)
@option(
    "--via",
    type=Word(words(Via)),
    default="auto",
    show_default=True,
    help="Operator that replaces TensorScatter; `auto` chooses by the width of a row.",
    section="How",
)
@option(
    "--index-dtype",
    type=Word(words(IndexDtype)),
    help="Element type of scatter indices; int32 requires ScatterElements.",
    section="How",
)
@option(
    "--bounds",
    type=Word(words(Bounds)),
    default="checked",
    show_default=True,
    help="Make a negative start fail at run time, as TensorScatter does, or let it wrap.",
    section="How",
)
@contrib_option(
    "How",
    " With --target, kvtool replaces those that the release does not support; otherwise, it"
    " keeps them.",
)
@option(
    "--element-type",
    type=Word(words(ElementType)),
    help="Replace bfloat16, which opsets 11 and 12 and many runtimes do not support, by this type"
    " in weights, inputs, outputs and caches. A constant that float16 cannot represent is refused.",
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

    MODEL is a path, or `-` for standard input. kvtool writes `<stem>.opset<N>.onnx` beside the
    input, or `<stem>.<runtime>-<version>.onnx` with --target. -o and --in-place choose another
    place. If MODEL is `-`, the default is standard output.

    kvtool replaces every operator that the opset does not have, in the main graph, in bodies and in
    functions. TensorScatter becomes ScatterND or ScatterElements. Attention, RMSNormalization and
    RotaryEmbedding become simpler operators. Other nodes, and the names and types of inputs and
    outputs, stay unchanged. kvtool does not optimise the model. With --dim, inputs and outputs
    declare fixed sizes, and kvtool folds the constants that follow.

    All or nothing: if a node cannot be lowered, kvtool writes nothing and reports every refusal
    with its reason. Before it writes, kvtool runs the result and MODEL on the same inputs, step by
    step. It does not write a result that differs.
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
  3  MODEL or its data cannot be read; with --verify: the models cannot be run
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
  inspect  show the caches of a model, and how each is updated
  verify   compare any two models
  lower    rewrite the model for runtimes without TensorScatter
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
    help="Lowest opset of the result; a model with a later opset keeps it.",
    section="What to raise",
)
@option(
    "--capacity",
    type=Rows(),
    metavar="N|NAME",
    help="Give growing caches a fixed capacity of N rows, or of the symbolic dimension NAME."
    "  [default: leave them unchanged]",
    section="What to raise",
)
@contrib_option("What to raise", default="standard")
@option(
    "--assume",
    multiple=True,
    metavar="WHAT",
    shell_complete=offers("assumptions"),
    help="Assume a fact that the graph does not state: `contiguous[:VALUE]`, `same-dim:A=B`,"
    " `in-range[:VALUE]`, `finite[:VALUE]`, `rotated-rows[:VALUE]`, `unpadded[:VALUE]` or"
    " `covers-past:VALUE`. A refusal names the missing fact. If VALUE is omitted, the fact holds"
    " for every input. Repeatable.",
    section="What to raise",
)
@option(
    "--attention",
    type=Word(words(AttentionChoice)),
    default="auto",
    show_default=True,
    help="How to fuse attention in many nodes: `keep` leaves it unchanged, `sliced` makes one"
    " Attention over the rows in use, `full` one over the whole capacity, `auto` chooses for each"
    " layer.",
    section="What to raise",
)
@option(
    "--require-all",
    is_flag=True,
    help="Exit with 1 and write nothing if a candidate cannot be raised.",
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

    MODEL is a path, or `-` for standard input. kvtool writes `<stem>.raised.onnx` beside the input.
    -o and --in-place choose another place. If MODEL is `-`, the default is standard output. If
    there is nothing to raise, kvtool writes nothing.

    An update may be ScatterND, ScatterElements, Where, a sum of masked products, or a Concat of
    slices. kvtool raises it if it can prove that row s of the update goes to `start + s` along one
    axis. Otherwise the update stays unchanged, and kvtool names the missing fact: you can grant it
    with --assume. kvtool converts a model below --opset. It changes nothing else.

    With --capacity, caches that grow by Concat or in Attention get a fixed number of rows. Inputs
    and outputs keep their names; only the axis that grew gets the capacity as its size. The start
    of a step follows from the length of a mask, or from a new input `past_length`, int64 of shape
    (1). If no cache gets the capacity, kvtool writes nothing unless you give --partial.

    Attention in many nodes (products, Softmax, masks, repeated heads) becomes one Attention if
    kvtool can prove that it computes the same.

    Before it writes, kvtool runs the result and MODEL on the same inputs, step by step. It does not
    write a result that differs.
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
