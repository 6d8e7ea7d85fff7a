"""`kvtool raise`: its request, the checks of it, and the work."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.caches import find_caches
from onnx_kvtool.commands.arguments import asked, check_least
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import RaiseRequest
from onnx_kvtool.commands.rewriting import in_files, in_memory, prepared, proven
from onnx_kvtool.core.choices import NATIVE_OPSET
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import Progress, check_verified, collector_paused, silent
from onnx_kvtool.core.record import taken
from onnx_kvtool.core.walk import values
from onnx_kvtool.core.words import enumerated
from onnx_kvtool.model_io.model import note_made
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.rewrite.raise_ import raise_model
from onnx_kvtool.rewrite.raise_report import RaiseReport, Unraised
from onnx_kvtool.rewrite.raising.stage import Assumptions, RaiseOutcome, RaiseSettings, dims_to_run
from onnx_kvtool.rewrite.report import Refused, Verification
from onnx_kvtool.symbolic.dimensions import dims_of, names_in


@asked(RaiseRequest)
def raise_(request: RaiseRequest) -> tuple[ir.Model, RaiseReport]:
    """Return an equal model whose proven cache updates are TensorScatter, and the report.

    Returns:
        The raised model, or an equal copy where there is nothing to raise; and the report. Nothing
        is written. Its inputs and outputs are those of `model`; with a capacity that is the size of
        the axis that grew, and there may be an input `past_length`, which the report names.

    Raises:
        Refused: If the result is not equal, the model cannot come to the opset, sizes contradict
            each other, something stays that is not `static`, no cache got the capacity, or, with
            `require_all`, a candidate stays; `report` says why.
        UnreadableModel: If the model, or external data that is needed, cannot be read.
        UsageError: If an argument is invalid.

    Examples:
        >>> raised, report = kv.raise_("exported.onnx")
        >>> raised.opset_imports[""], len(report.raised), report.verification.status
        (24, 4, 'equal')
    """
    _check_request(request)
    work, report = in_memory(request, _raise)
    if failed(report, request):
        raise Refused(report)
    note_made(work, "raised")
    return work, report


def run(request: RaiseRequest, progress: Progress = silent) -> RaiseReport:
    """Carry out `kvtool raise`.

    Args:
        request: What to do.
        progress: Receives the current activity.

    Returns:
        The report; its `output` is None when nothing was written: nothing to raise, a model that
        cannot come to the opset, a refusal with `require_all`, a result that was not equal, or a
        dry run.

    Raises:
        UsageError: If an argument is invalid, or the output would overwrite the input or,
            without `-o`, another file.
        UnreadableModel: If the model, or external data that is needed, cannot be read.
        KvtoolError: If the output cannot be written; nothing is left behind.
    """
    _check_request(request)
    return in_files(
        request,
        _raise,
        lambda report: "raised" if report.is_changed and not failed(report, request) else None,
        progress,
    )


def failed(report: RaiseReport, request: RaiseRequest) -> bool:
    """Return whether a raise ended in a failure (exit 1)."""
    return bool(
        report.blocked or report.verification.fails or (request.require_all and report.refused)
    )


def _check_request(request: RaiseRequest) -> None:
    """Refuse an opset without TensorScatter, and unknown assumptions."""
    if not NATIVE_OPSET <= request.opset <= NEWEST:
        raise UsageError(f"`--opset` is {request.opset}, expected {NATIVE_OPSET} to {NEWEST}")
    check_verified(request.verify, vars(request))
    if request.static and request.attention == "sliced":
        raise UsageError(
            "`--attention sliced` reads as many rows as are in use, which `--static` excludes",
            help="use `--attention full`, or leave it out",
        )
    Assumptions.parse(request.assume)


def _check_capacity(model: ir.Model, capacity: int | str | None) -> None:
    """Refuse a capacity that is neither a number of rows nor a new name."""
    if isinstance(capacity, int):
        check_least("capacity", capacity, 1)
    elif capacity is not None:
        if not capacity.isidentifier():
            expected = "expected an integer of at least 1, or a name"
            raise UsageError(f"`--capacity` is `{capacity}`, {expected}")
        dims = {dim for value in values(model) for dim in dims_of(value) or ()}
        if any(isinstance(dim, str) and capacity in names_in(dim) for dim in dims):
            raise UsageError(
                f"`--capacity {capacity}` names a dimension that the model has already",
                help="choose a name that is new",
            )


def _unused_capacity(
    model: ir.Model, capacity: int | str, outcome: RaiseOutcome
) -> list[Diagnostic]:
    """Return an error if no cache has the capacity.

    Args:
        model: The result.
        capacity: The requested rows.
        outcome: What was raised.
    """
    if any(one.capacity == capacity or one.source == "rolling" for one in outcome.caches):
        return []  # a window keeps the rows that it needs
    found = find_caches(model, prove=False)
    if any(one.capacity == capacity and not one.is_growing for one in found):
        return []
    message = f"no cache got the {capacity} rows of `--capacity`"
    why = "the refusals say why" if outcome.refused else "no cache of the model grows"
    help_ = f"{why}; leave out `--capacity`, or write what else was raised with `--partial`"
    place = Location(model.graph.name or "")
    return [Diagnostic("capacity-unused", "error", place, message, help_)]


def _raise(
    model: ir.Model, request: RaiseRequest, source: ir.Model | None, progress: Progress
) -> RaiseReport:
    """Raise a model in place, check and verify it; see `Rewrite`."""
    assumptions = Assumptions.parse(request.assume)
    assumptions.check(model)
    _check_capacity(model, request.capacity)
    settings = taken(RaiseSettings, request, assumptions=assumptions, dims=request.sizes)
    verifier = prepared(model, request, progress, needs_source=True)
    progress("raising")
    with collector_paused():
        outcome = raise_model(model, settings)
    if request.capacity is not None and not (request.partial or outcome.blocked):
        outcome.blocked = _unused_capacity(model, request.capacity, outcome)
    report = outcome.report(path_in(request.model) or outcome.model)
    report.ir_version = model.ir_version
    if not report.is_changed:
        report.verification = Verification("skipped", detail="nothing was raised")
        if not report.blocked:
            report.notes += _why_nothing(model, report.refused)
            if request.sizes or request.static:
                report.notes.append(
                    "nothing was raised, so that no size is fixed; `kvtool lower --dim` fixes "
                    "those of any model"
                )
        return report
    report.verification = proven(
        model,
        source or request.model,
        verifier,
        report.notes,
        progress,
        dims=dims_to_run(outcome.equal_dims, request.sizes),
        positions=outcome.positions,
        rotated=outcome.rotated,
        unpadded=outcome.unpadded,
        is_in_range=outcome.is_in_range,
    )
    return report


def _why_nothing(model: ir.Model, refused: Sequence[Unraised]) -> list[str]:
    """Return a note for each unchanged cache without a refusal.

    Args:
        model: A model without anything raised.
        refused: The refusals.
    """
    judged = {(one.location.graph, one.location.node_label) for one in refused}
    caches = find_caches(model, prove=False)
    left: dict[str, list[str]] = {}
    for cache in caches:
        if (cache.location.graph, cache.location.node_label) not in judged:
            name = cache.past or cache.present or cache.location.node_label or ""
            left.setdefault(cache.location.op or "", []).append(name)
    if not caches and not refused:
        return ["no cache was found: no input comes back as an output with new rows in it"]
    return [
        f"{enumerated(names)}: TensorScatter updates {'it' if len(names) == 1 else 'them'} already"
        if op == "TensorScatter"
        else f"{enumerated(names)}: updated by {op}, in a form that no rule of `raise` reads"
        for op, names in left.items()
    ]
