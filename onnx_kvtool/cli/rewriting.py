"""`kvtool lower` and `kvtool raise`."""

from __future__ import annotations

import os

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import refuse_stdout, show, shown_progress
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import LowerRequest, RaiseRequest, RewriteRequest
from onnx_kvtool.core.errors import refuse
from onnx_kvtool.core.machine import check_verified
from onnx_kvtool.model_io.places import check_result

# What the commands that write a model refuse before anything is read.


def _refuse_nonsense(request: RewriteRequest) -> None:
    """Refuse options that contradict each other, and invalid paths.

    Raises:
        KvtoolError: Before anything is read, and before the libraries that reading needs.
    """
    model = path_in(request.model)
    output = request.output or ("-" if model == "-" else None)
    refuse(
        (
            request.in_place and model == "-",
            "`--in-place` needs a file, got standard input",
            "give the result a name with `-o OUT`",
        ),
        (
            request.in_place and request.output is not None,
            "`--in-place` and `-o` exclude each other",
            "leave one of them out",
        ),
        (
            output == "-" and request.external_data is not None,
            "`--external-data` places files beside the output, and standard output has no place",
            "write the model to a file with `-o OUT`",
        ),
        (
            request.phases and not request.static,
            "`--phases` makes static models",
            "add `--static`",
        ),
        (
            request.phases and (request.output in (None, "-") or request.in_place or model == "-"),
            "`--phases` writes several models, from a file into a directory",
            "name both: `MODEL -o DIR`",
        ),
        (
            request.phases and os.path.isfile(request.output or ""),
            f"`{request.output}` is a file, and `--phases` writes into a directory",
            "name a directory, or one that is to be created",
        ),
        (
            request.phases and request.external_data is not None,
            "`--phases` writes a data file of its own, and `--external-data` places those of MODEL",
            "leave one of them out",
        ),
    )
    check_verified(request.verify, vars(request))
    if output == "-" and not request.dry_run:
        refuse_stdout(request.output_format)
    check_result(model, request.output, in_place=request.in_place, dry_run=request.dry_run)


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


@command(LowerRequest, epilog=_LOWER_EPILOG)
def lower(context: click.Context, request: LowerRequest) -> None:
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
    _refuse_nonsense(request)

    from onnx_kvtool.commands.lower import run

    with shown_progress() as progress:
        report = run(request, progress)
    show(context, report, request.output_format, talks=True, dry_run=request.dry_run)
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
    RaiseRequest, "raise", epilog=_RAISE_EPILOG, short_help="Turn cache updates into TensorScatter."
)
def raise_(context: click.Context, request: RaiseRequest) -> None:
    """Turn the cache updates of MODEL into TensorScatter and verify the result.

    MODEL is a path, or `-` for standard input. kvtool writes `<stem>.raised.onnx` beside the input.
    -o and --in-place choose another place. If MODEL is `-`, the default is standard output. If
    there is nothing to raise, kvtool writes nothing.

    An update may be ScatterND, ScatterElements, Where, a sum of masked products, or a Concat of
    slices. kvtool raises it if it can prove that row s of the update goes to `start + s` along one
    axis. Otherwise the update stays unchanged, and kvtool names the missing fact: you can grant it
    with --assume. If the model's opset is below --opset, kvtool converts the model. It changes
    nothing else.

    With --capacity, caches that grow by Concat or in Attention get a fixed number of rows. Inputs
    and outputs keep their names; only the axis that grew gets the capacity as its size. The start
    of a step follows from the length of a mask, or from a new input `past_length`, int64 of shape
    (1). If no cache gets the capacity, kvtool writes nothing unless you give --partial.

    Attention in many nodes (products, Softmax, masks, repeated heads) becomes one Attention if
    kvtool can prove that it computes the same.

    Before it writes, kvtool runs the result and MODEL on the same inputs, step by step. It does not
    write a result that differs.
    """
    _refuse_nonsense(request)

    from onnx_kvtool.commands.raise_ import failed, run

    with shown_progress() as progress:
        report = run(request, progress)
    is_failure = failed(report, request)
    dry_run = request.dry_run
    show(context, report, request.output_format, talks=True, failed=is_failure, dry_run=dry_run)
    context.exit(1 if is_failure else 0)
