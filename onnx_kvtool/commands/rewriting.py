"""The steps that `lower` and `raise` share: read, rewrite, check, verify, write."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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
from onnx_kvtool.guard.weightless import weightless
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
from onnx_kvtool.shapes.annotations import forget_contradictions

if TYPE_CHECKING:
    from onnx_kvtool.rewrite.verify import Verifier


class Report(Written, Protocol):
    """The common part of the reports of rewrites."""

    verification: Verification
    phases: tuple[Phase, ...]


_Request = TypeVar("_Request", bound=RewriteRequest)
_Report = TypeVar("_Report", bound=Report)

Rewrite = Callable[[ir.Model, _Request, ir.Model | None, Progress], _Report]
"""Rewrites a model in place. Its arguments are the model, the request, an unchanged copy (None if
the model can be read again), and the receiver of the current activity."""


def in_memory(
    request: _Request,
    rewrite: Rewrite[_Request, _Report],
) -> tuple[ir.Model, _Report]:
    """Rewrite a copy of a model, or the model at a path; write nothing."""
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
        request: The request.
        rewrite: Rewrites the model.
        suffix: Returns the suffix for the stem of the default output; None if the result must not
            be written.
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
    """Write a static model for each phase; arguments and result as for `in_files`."""
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
    """Verify that the models of all phases together equal the source.

    Raises:
        Unverified: If verification is mandatory, and the models cannot be run.
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
    """Return the sizes of dimensions that count new tokens, sequences (1) and mask columns.

    Raises:
        UsageError: If no dimension counts new tokens, or `dims` already has it.
    """
    from onnx_kvtool.verification.inputs.plan import plan

    means = plan(model)
    kinds = means.kinds
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
    rows = min(means.capacities, default=0)
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
    """Return the path of a result; without a name, it is beside the input, with a suffix."""
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
    """Return whether kvtool chooses the name of the result."""
    return request.output is None or is_directory(request.output)


def prepared(
    model: ir.Model, request: RewriteRequest, progress: Progress, *, needs_source: bool = False
) -> Verifier | None:
    """Check a model before a rewrite; return what verifies the result, None for `--no-verify`.

    Args:
        model: The model.
        request: The request.
        progress: Receives the current activity.
        needs_source: Whether to reject the result if the source fails on all drawn inputs.
    """
    budget = Budget.parse(request.verify_budget)
    check_data(model, path_in(request.model), need_bytes=request.verify is not False)
    check_dims(model, request.sizes)
    if request.verify is False:
        return None
    from onnx_kvtool.rewrite.verify import Verifier  # and with it everything that runs models
    from onnx_kvtool.verification.report import Settings

    settings = Settings(
        steps=request.verify_steps,
        dims=request.sizes,
        progress=progress,
        budget=budget,
        thorough=request.thorough,
        strict=request.strict,
    )
    return Verifier(model, settings, force=request.verify is True, needs_source=needs_source)


def proven(
    model: ir.Model,
    source: ModelSource,
    verifier: Verifier | None,
    notes: list[str],
    progress: Progress,
    **how: Any,
) -> Verification:
    """Check a result with onnx's checker, and compare it with its source.

    Args:
        model: The result.
        source: The unchanged model, or where to read it from again.
        verifier: Runs and compares both; None for `--no-verify`.
        notes: Gets a note if the checker rejects both.
        progress: Receives the current activity.
        how: As for `Verifier.compare`.

    Raises:
        AssertionError: If the checker rejects the result of a source that it accepts.
    """
    progress("checking the result")
    with collector_paused():
        after = _complaint(forget_contradictions(model) or weightless(model))
    if after is not None:
        before = source if isinstance(source, ir.Model) else open_model(source)
        if _complaint(weightless(before)) is None:
            raise AssertionError(f"onnx's checker rejects the result: {after}")
        notes.append(f"onnx's checker rejects the source and the result: {after}")
    if verifier is None:
        return Verification("skipped", detail="switched off with `--no-verify`")
    return verifier.compare(model, **how)


def _complaint(message: onnx.ModelProto) -> str | None:
    """Return the error of onnx's checker for a model; None if it accepts the model."""
    try:
        onnx.checker.check_model(message)
    except onnx.checker.ValidationError as error:
        return str(error).strip().splitlines()[0]
    return None
