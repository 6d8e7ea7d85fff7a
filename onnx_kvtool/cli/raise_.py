"""`kvtool raise`: turn the cache updates of a model into TensorScatter."""

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
from onnx_kvtool.cli.types import Rows, Whole, Word
from onnx_kvtool.core.choices import (
    NATIVE_OPSET,
    AttentionChoice,
    ReportFormat,
    words,
)

__all__ = ["raise_"]

_EPILOG = """\b
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
    epilog=_EPILOG,
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

    from onnx_kvtool.cli.progress import shown_progress
    from onnx_kvtool.commands.raise_ import RaiseRequest, failed, run

    request = RaiseRequest(**options)
    with shown_progress() as progress:
        report = run(request, progress)
    is_failure = failed(report, request)
    if output_format == "json":
        write_json("raise", report)
    else:
        from onnx_kvtool.report.raise_text import blocks
        from onnx_kvtool.report.text import print_talk

        said = blocks(report, failed=is_failure, dry_run=request.dry_run)
        print_talk(said, color=context.color)
    context.exit(1 if is_failure else 0)
