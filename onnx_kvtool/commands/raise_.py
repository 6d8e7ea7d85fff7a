"""`kvtool raise`: what it is asked, what can be wrong with that, and what it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.caches import find_caches
from onnx_kvtool.commands.arguments import check_choice, check_least, listed, speaking_python
from onnx_kvtool.commands.rewriting import (
    RewriteRequest,
    check_common,
    in_files,
    in_memory,
    prepared,
    proven,
)
from onnx_kvtool.core.choices import NATIVE_OPSET, AttentionChoice, ContribChoice, words
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import Progress, collector_paused, silent
from onnx_kvtool.core.walk import values
from onnx_kvtool.core.words import enumerated
from onnx_kvtool.model_io.model_source import ModelSource, path_of
from onnx_kvtool.model_io.origin import note_made
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.rewrite.raise_ import raise_model
from onnx_kvtool.rewrite.raise_report import RaiseReport, Unraised
from onnx_kvtool.rewrite.raising.stage import Assumptions, RaiseOutcome, RaiseSettings, dims_to_run
from onnx_kvtool.rewrite.report import Refused, Verification
from onnx_kvtool.symbolic.dimensions import dims_of, names_in

__all__ = ["RaiseRequest", "raise_", "run"]


@dataclass(frozen=True, slots=True)
class RaiseRequest(RewriteRequest):
    """What `kvtool raise` was asked to do.

    Attributes:
        opset: Lowest opset of the result; a model that is at a later one stays there.
        capacity: Rows for caches that grow: a number, or the name of a dimension; None to leave
            them as they are.
        contrib: Whether operators of onnxruntime are written with those of ONNX.
        assume: What may be taken for granted, as `--assume` takes it.
        attention: What becomes of attention in many nodes.
        require_all: Whether a candidate that stays as it was is a failure.
        partial: Whether a model may be raised although no cache of it got the capacity.
        static: Whether every size of the result has to be a number.
    """

    opset: int = NATIVE_OPSET
    capacity: int | str | None = None
    contrib: ContribChoice = "standard"
    assume: tuple[str, ...] = ()
    attention: AttentionChoice = "auto"
    require_all: bool = False
    partial: bool = False
    static: bool = False


@speaking_python
def raise_(
    model: ModelSource,
    *,
    opset: int = NATIVE_OPSET,
    capacity: int | str | None = None,
    contrib: ContribChoice = "standard",
    assume: Sequence[str] = (),
    attention: AttentionChoice = "auto",
    require_all: bool = False,
    partial: bool = False,
    verify: bool | None = None,
    verify_steps: int | None = None,
    verify_budget: str | None = None,
    thorough: bool = False,
    strict: bool = False,
    dims: Mapping[str, int] | None = None,
    static: bool = False,
) -> tuple[ir.Model, RaiseReport]:
    """Return an equal model whose proven cache updates are TensorScatter, and the report.

    Args:
        model: A model (an `onnx_ir.Model` or an `onnx.ModelProto`), which is not changed, or the
            path of one.
        opset: Lowest opset of the result, at least 24; a model that is at a later one stays there,
            and one without anything to raise stays as it is.
        capacity: Rows that a cache which grows with every step gets: a number, at least 1, or the
            name of a symbolic dimension that the model does not have; None leaves such caches as
            they are, and reports them as refused.
        contrib: `standard` writes operators of onnxruntime (com.microsoft) with those of ONNX where
            these have an exact form, `keep` leaves them alone.
        assume: What may be taken for granted where the graph does not say it: `contiguous[:VALUE]`,
            `same-dim:A=B`, `in-range[:VALUE]`, `finite[:VALUE]`, `covers-past:VALUE`,
            `rotated-rows[:VALUE]`, `unpadded[:VALUE]`.
        attention: What becomes of attention in many nodes: `keep` leaves it, `sliced` writes one
            Attention over the rows in use, `full` over the whole capacity, `auto` either.
        require_all: Whether a candidate that cannot be raised is a failure.
        partial: Whether the model is raised although no cache got the capacity; otherwise that is a
            failure.
        verify: True forces the comparison, of the models as they are if the machine has the memory;
            False switches it off; None compares within the budget.
        verify_steps: Number of decode steps per case, at least 1; None for 2.
        verify_budget: Memory, time or both that verification may take, about: `1GiB`, `30s`,
            `1GiB,30s`; None for 256 MiB and 5 s. Models that need more are compared by copies with
            smaller sizes and fewer layers.
        thorough: Whether the proof is tested at every rewritten place and in all cases, not at a
            sample.
        strict: Whether something that the proof did not cover is a failure.
        dims: Sizes of symbolic dimensions, at least 1, which the result has in place of the names:
            it runs at these alone, with all that follows from them folded. What a cache grows along
            has the capacity instead.
        static: Whether the result must have numbers for all sizes, and no node that reads one or
            cuts where an input says; what the model itself fixes is folded too.

    Returns:
        The raised model, or an equal copy where there is nothing to raise; and the report. Nothing
        is written. Its inputs and outputs are those of `model`; with a capacity that is the size of
        the axis that grew, and there may be an input `past_length`, which the report names.

    Raises:
        Refused: If the result is not equal, the model cannot come to the opset, sizes contradict
            each other, something stays that is not `static`, no cache got the capacity, or, with
            `require_all`, a candidate stays; `report` says why.
        UnreadableModel: If the model, or external data that is needed, cannot be read.
        UsageError: If an argument cannot be meant.

    Examples:
        >>> raised, report = kv.raise_("exported.onnx")
        >>> raised.opset_imports[""], len(report.raised), report.verification.status
        (24, 4, 'equal')
    """
    request = RaiseRequest(
        model=path_of(model),
        opset=opset,
        capacity=capacity,
        contrib=contrib,
        assume=listed("assume", assume),
        attention=attention,
        require_all=require_all,
        partial=partial,
        verify=verify,
        verify_steps=verify_steps,
        verify_budget=verify_budget,
        thorough=thorough,
        strict=strict,
        dims=dims or {},
        static=static,
    )
    _check_request(request)
    work, report = in_memory(model, request, _raise)
    if failed(report, request):
        raise Refused(report)
    note_made(work, "raised")
    return work, report


def run(request: RaiseRequest, progress: Progress = silent) -> RaiseReport:
    """Carry out `kvtool raise`.

    Args:
        request: What to do.
        progress: Told of what is begun.

    Returns:
        The report; its `output` is None when nothing was written: nothing to raise, a model that
        cannot come to the opset, a refusal with `require_all`, a result that was not equal, or a
        dry run.

    Raises:
        UsageError: If an argument cannot be meant, or the output would overwrite the input or,
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
    """Refuse an opset without TensorScatter, and assumptions that are none."""
    if not NATIVE_OPSET <= request.opset <= NEWEST:
        raise UsageError(f"`--opset` is {request.opset}, expected {NATIVE_OPSET} to {NEWEST}")
    check_choice("attention", request.attention, words(AttentionChoice))
    check_choice("contrib", request.contrib, words(ContribChoice))
    check_common(request)
    if request.static and request.attention == "sliced":
        raise UsageError(
            "`--attention sliced` reads as many rows as are in use, which `--static` excludes",
            help="use `--attention full`, or leave it out",
        )
    Assumptions.parse(request.assume)


def _check_capacity(model: ir.Model, capacity: int | str | None) -> None:
    """Refuse a capacity that is no number of rows, or a name that means something else already."""
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
    """Say that no cache got the capacity; nothing where one did, or had it before.

    Args:
        model: The result.
        capacity: The rows that were asked for.
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
    """Raise a model in place, check and verify it.

    Args:
        model: The model to work on.
        request: What was asked for.
        source: The model as it was; None when it can be read again.
        progress: Told of what is begun.
    """
    assumptions = Assumptions.parse(request.assume)
    assumptions.check(model)
    _check_capacity(model, request.capacity)
    settings = RaiseSettings(
        opset=request.opset,
        assumptions=assumptions,
        capacity=request.capacity,
        attention=request.attention,
        contrib=request.contrib,
        dims=request.dims,
        static=request.static,
    )
    verifier = prepared(model, request, progress, needs_source=True)
    progress("raising")
    with collector_paused():
        outcome = raise_model(model, settings)
    if request.capacity is not None and not (request.partial or outcome.blocked):
        outcome.blocked = _unused_capacity(model, request.capacity, outcome)
    report = outcome.report(request.model or outcome.model)
    report.ir_version = model.ir_version
    if not report.is_changed:
        report.verification = Verification("skipped", detail="nothing was raised")
        if not report.blocked:
            report.notes += _why_nothing(model, report.refused)
            if request.dims or request.static:
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
        dims=dims_to_run(outcome.equal_dims, request.dims),
        positions=outcome.positions,
        rotated=outcome.rotated,
        unpadded=outcome.unpadded,
        is_in_range=outcome.is_in_range,
    )
    return report


def _why_nothing(model: ir.Model, refused: Sequence[Unraised]) -> list[str]:
    """Say of each cache that no refusal is about why it stays as it is.

    Args:
        model: A model of which nothing was raised.
        refused: The candidates.
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
