"""What `lower` and `raise` share: what both are asked, and the way both go about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import onnx
import onnx.checker
import onnx_ir as ir

from onnx_kvtool.commands.arguments import check_data, check_dims
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.output import (
    Written,
    default_output,
    write_result,
    write_together,
)
from onnx_kvtool.commands.requests import RewriteRequest
from onnx_kvtool.core.errors import Unverified, UsageError
from onnx_kvtool.core.machine import Budget, Progress, collector_paused, silent
from onnx_kvtool.core.words import counted
from onnx_kvtool.guard.inference import weightless
from onnx_kvtool.model_io.model import clone, read
from onnx_kvtool.model_io.model_source import ModelSource, open_model
from onnx_kvtool.model_io.places import (
    REPLACING,
    check_output,
    check_result,
    in_directory,
    is_directory,
)
from onnx_kvtool.model_io.sorting import sort_nodes
from onnx_kvtool.model_io.stored import free_path
from onnx_kvtool.rewrite.report import Phase, Verification
from onnx_kvtool.shapes.infer import forget_contradictions

if TYPE_CHECKING:
    from onnx_kvtool.rewrite.verify import Verifier


class Report(Written, Protocol):
    """What is said of every rewrite."""

    verification: Verification
    phases: tuple[Phase, ...]


_Request = TypeVar("_Request", bound=RewriteRequest)
_Report = TypeVar("_Report", bound=Report)

Rewrite = Callable[[ir.Model, _Request, ir.Model | None, Progress], _Report]
"""Rewrites a model in place. It gets the model, the request, the model as it was (None where that
can be read again), and what is told of each part of the work."""


def in_memory(
    request: _Request,
    rewrite: Rewrite[_Request, _Report],
) -> tuple[ir.Model, _Report]:
    """Rewrite a copy of a model, or what a path holds, and write nothing."""
    work = open_model(request.model)
    notes = sort_nodes(work)
    report = rewrite(work, request, None, silent)
    report.notes[:0] = notes
    return work, report


def in_files(
    request: _Request,
    rewrite: Rewrite[_Request, _Report],
    suffix: Callable[[_Report], str | None],
    progress: Progress,
) -> _Report:
    """Read a model, rewrite it and write the result.

    Args:
        request: What was asked for.
        rewrite: What to do with the model.
        suffix: What to put behind the stem of the input where no output is named; None for a
            result that is not to be written.
        progress: Receives the current activity.

    Returns:
        The report; its `output` is None when nothing was written.

    Raises:
        UsageError: If the output would overwrite the input or, without `-o`, another file.
        UnreadableModel: If the model, or external data that is needed, cannot be read.
        KvtoolError: If the output cannot be written; nothing is left behind.
    """
    path = path_in(request.model)
    check_result(path, request.output, in_place=request.in_place, dry_run=request.dry_run)
    if request.phases:
        return _in_phases(request, rewrite, suffix, progress)
    progress("reading the model")
    model = read(path)
    notes = sort_nodes(model)
    source = clone(model) if path == "-" else None
    report = rewrite(model, request, source, progress)
    report.notes[:0] = notes
    addition = suffix(report)
    if addition is not None and not request.dry_run:
        progress("writing the result")
        write_result(
            model,
            _output_path(request, addition),
            report,
            external_data=request.external_data,
            is_named=request.in_place or not _is_chosen(request),
        )
    return report


def _in_phases(
    request: _Request,
    rewrite: Rewrite[_Request, _Report],
    suffix: Callable[[_Report], str | None],
    progress: Progress,
) -> _Report:
    """Make a static model of each phase, as `in_files` makes one of all."""
    path, directory = path_in(request.model), request.output or ""
    made: dict[str, ir.Model] = {}
    phases: list[Phase] = []
    first: _Report | None = None
    for name, tokens in (request.phases or {}).items():
        progress(f"reading the model for `{name}`")
        model = read(path)
        notes = sort_nodes(model)
        sizes = _phase_sizes(model, request.sizes, tokens)
        report = rewrite(model, request.replace(dims=sizes), None, progress)
        report.notes[:0] = notes
        if suffix(report) is None:
            report.notes.insert(0, f"this is about `{name}`, with {counted(tokens, 'new token')}")
            return report
        output = os.path.join(directory, os.path.basename(default_output(path, name)))
        made[output] = model
        phases.append(Phase(name, tokens, None if request.dry_run else output, report.verification))
        first = first or report
    assert first is not None
    first.phases = tuple(phases)
    first.verification = _together(request, [*made.values()], phases, progress)
    if first.verification.fails:
        return first
    if not request.dry_run:
        progress("writing the results")
        stem = default_output(path, "").removesuffix("..onnx")
        data_path = free_path(made.values(), os.path.join(directory, os.path.basename(stem)))
        write_together(made, data_path, first, directory)
    return first


def _together(
    request: RewriteRequest,
    models: Sequence[ir.Model],
    phases: Sequence[Phase],
    progress: Progress,
) -> Verification:
    """Prove that models that are each equal to the source are so together.

    Raises:
        Unverified: If they cannot be run, and have to be.
    """
    unproven = [phase.verification for phase in phases if phase.verification.status != "equal"]
    if unproven:
        return unproven[0]
    from onnx_kvtool.commands.handing import handed_on

    covered = [phase.verification.covered for phase in phases]
    tolerances = [one for found in covered if found for one in found.tolerance.items()]
    logits = [one for name, one in tolerances if "logits" in name.lower()]
    found = handed_on(
        read(path_in(request.model)),
        models,
        max(logits, key=lambda one: one.atol, default=None),
        dims=request.sizes,
        budget=Budget.parse(request.verify_budget),
        progress=progress,
    )
    if request.verify and found.status == "skipped":
        help = "leave `--verify` out to write them unverified"
        raise Unverified(found.detail or "", help=help)
    if request.strict and found.status == "skipped":
        return replace(found, insufficient=found.detail)
    return found


def _phase_sizes(model: ir.Model, dims: Mapping[str, int], tokens: int) -> dict[str, int]:
    """Return sizes for what counts new tokens; for sequences (one); for masks.

    Raises:
        UsageError: If nothing counts new tokens, or their number was given.
    """
    from onnx_kvtool.verification.inputs.plan import plan
    from onnx_kvtool.verification.inputs.symbols import fixed_capacities, kinds_of

    means = plan(model)
    kinds = kinds_of(means)
    lengths = [name for name, kind in kinds.items() if kind == "length"]
    of_ids = {str(dim) for spec in means.with_role("token_ids") for dim in spec.shape}
    lengths = [name for name in lengths if name in of_ids] or lengths
    if not lengths:
        raise UsageError(
            "`--phases` needs an input dimension that counts new tokens",
            help="use the model before its sizes were fixed",
        )
    if given := [name for name in lengths if name in dims]:
        raise UsageError(
            f"`--phases` and `--dim` both say how many new tokens there are: `{given[0]}`",
            help="leave one of them out",
        )
    sizes: dict[str, int] = {name: 1 for name, kind in kinds.items() if kind == "batch"}
    rows = min(fixed_capacities(means), default=0)
    rest = {"past": rows - tokens, "total": rows} if rows else {}
    masks = {name: rest[kind] for name, kind in kinds.items() if kind in rest}
    if masks.keys() - dims.keys() and not means.with_role("past_length", "write_indices"):
        raise UsageError(
            f"new rows go where the size `{next(iter(masks))}` sets, and `--static` fixes it",
            help="raise the model with growing caches by `kvtool raise --static --phases`, and"
            " lower each of its phases",
        )
    sizes |= masks
    return {**sizes, **dict.fromkeys(lengths, tokens), **dims}


def _output_path(request: RewriteRequest, suffix: str) -> str:
    """Return where to write a result; without a name that is beside the input, as `suffix` says."""
    path = path_in(request.model)
    if request.in_place:
        return path
    if path == "-" or not _is_chosen(request):
        return request.output or "-"
    output = default_output(path, suffix)
    if request.output is not None:
        output = in_directory(request.output, os.path.basename(output))
    check_output(path, output, f"{REPLACING}, or name another file with `-o OUT`")
    return output


def _is_chosen(request: RewriteRequest) -> bool:
    """Return whether the name of the result is for kvtool to choose."""
    return request.output is None or is_directory(request.output)


def prepared(
    model: ir.Model, request: RewriteRequest, progress: Progress, *, needs_source: bool = False
) -> Verifier | None:
    """Check a model that is about to be rewritten; return what will compare the result with it.

    Args:
        model: The model.
        request: What was asked for.
        progress: Receives the current activity.
        needs_source: Whether the result of a source that fails on all drawn inputs is rejected.
    """
    budget = Budget.parse(request.verify_budget)
    check_data(model, path_in(request.model), need_bytes=request.verify is not False)
    check_dims(model, request.sizes)
    if request.verify is False:
        return None
    from onnx_kvtool.rewrite.verify import Verifier  # and with it everything that runs models

    return Verifier(
        model,
        steps=request.verify_steps,
        dims=request.sizes,
        force=request.verify is True,
        progress=progress,
        budget=budget,
        thorough=request.thorough,
        strict=request.strict,
        needs_source=needs_source,
    )


def proven(
    model: ir.Model,
    source: ModelSource,
    compare: Callable[[ir.Model], Verification] | None,
    notes: list[str],
    progress: Progress,
) -> Verification:
    """Hold a result against onnx's checker, and against its source by running both.

    Args:
        model: The result.
        source: The model as it was, or what to read it from again.
        compare: What compares; None where that is switched off.
        notes: Gets a remark if the checker accepts neither.
        progress: Receives the current activity.

    Raises:
        AssertionError: If the checker rejects the result of a source that it accepts.
    """
    progress("checking the result")
    _check_result(model, source, notes)
    if compare is None:
        return Verification("skipped", detail="switched off with `--no-verify`")
    return compare(model)


def _check_result(model: ir.Model, source: ModelSource, notes: list[str]) -> None:
    """Hold a result against onnx's checker, where the source passes it.

    What `value_info` of the source says that is not so is dropped before.
    """
    with collector_paused():
        after = _complaint(model, forget_contradictions(model))
    if after is None:
        return
    if _complaint(source if isinstance(source, ir.Model) else open_model(source)) is None:
        raise AssertionError(f"onnx's checker rejects the result: {after}")
    notes.append(f"onnx's checker rejects the source and the result: {after}")


def _complaint(model: ir.Model, message: onnx.ModelProto | None = None) -> str | None:
    """Return what onnx's checker says against a model; None when it accepts it.

    Args:
        model: The model.
        message: What `weightless` returns for it, where that is there already.
    """
    try:
        onnx.checker.check_model(weightless(model) if message is None else message)
    except onnx.checker.ValidationError as error:
        return str(error).strip().splitlines()[0]
    return None
