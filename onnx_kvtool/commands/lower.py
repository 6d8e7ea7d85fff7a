"""`kvtool lower`: what it is asked, what can be wrong with that, and what it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.commands.arguments import check_choice, listed, speaking_python
from onnx_kvtool.commands.rewriting import (
    RewriteRequest,
    check_common,
    in_files,
    in_memory,
    prepared,
    proven,
)
from onnx_kvtool.core.choices import (
    DEFAULT_OPSET,
    LOWERED_OPSETS,
    Bounds,
    ContribChoice,
    ElementType,
    IndexDtype,
    Via,
    words,
)
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import Progress, collector_paused, silent
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.model_io.model_source import ModelSource, path_of
from onnx_kvtool.model_io.origin import note_made, origin
from onnx_kvtool.ops.schema import operators
from onnx_kvtool.ops.traits import dtype_named
from onnx_kvtool.rewrite.element_type import TypeChange, change_element_type, naming_the_flag
from onnx_kvtool.rewrite.engine.expand import has_body
from onnx_kvtool.rewrite.engine.release import highest_opset
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.fixing.fix import rewrite_fixed
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.report import LowerReport, Outcome, Refused, Verification
from onnx_kvtool.targets.target import Target, find_target

__all__ = ["LowerRequest", "check_request", "lower", "run"]


@dataclass(frozen=True, slots=True)
class LowerRequest(RewriteRequest):
    """What `kvtool lower` was asked to do.

    Attributes:
        opset: Target opset; None for `DEFAULT_OPSET`, that of `target`, or the model's own with
            `only`.
        target: Release of a runtime that must load the result, `RUNTIME[@VERSION]`; its highest
            opset is the default of `opset`, which must not exceed it.
        only: Operators to replace, all others staying as they are.
        via: Form of a lowered TensorScatter.
        index_dtype: Element type of scatter indices; None for int64.
        bounds: Whether a start that TensorScatter refuses must fail in the result.
        contrib: Whether operators of onnxruntime are written with those of ONNX; None for those
            that `target` does not import.
        element_type: Type that takes the place of bfloat16 everywhere; None to keep it.
        static: Whether every size of the result has to be a number.
    """

    opset: int | None = None
    target: str | None = None
    only: tuple[str, ...] = ()
    via: Via = "auto"
    index_dtype: IndexDtype | None = None
    bounds: Bounds = "checked"
    contrib: ContribChoice | None = None
    element_type: ElementType | None = None
    static: bool = False


@speaking_python
def lower(
    model: ModelSource,
    *,
    opset: int | None = None,
    target: str | None = None,
    only: Sequence[str] = (),
    via: Via = "auto",
    index_dtype: IndexDtype | None = None,
    bounds: Bounds = "checked",
    contrib: ContribChoice | None = None,
    element_type: ElementType | None = None,
    verify: bool | None = None,
    verify_steps: int | None = None,
    verify_budget: str | None = None,
    thorough: bool = False,
    strict: bool = False,
    dims: Mapping[str, int] | None = None,
    static: bool = False,
) -> tuple[ir.Model, LowerReport]:
    """Return an equal model for an older opset, and the report of what was done.

    Args:
        model: A model (an `onnx_ir.Model` or an `onnx.ModelProto`), which is not changed, or the
            path of one.
        opset: Target opset; None for 18, for that of `target`, or for the model's own with `only`.
        target: Release of a runtime that must load the result, such as `onnxruntime@1.17`: opset,
            IR version and operators are chosen for it.
        only: Operators to replace, wherever they stand; all others and the opset stay. Empty for
            what the opset or the release needs.
        via: Form of a lowered TensorScatter; `auto` chooses by the width of a row.
        index_dtype: Element type of scatter indices; int32 goes with ScatterElements only.
        bounds: Whether a negative start fails at run time, as TensorScatter does, or wraps.
        contrib: `standard` writes operators of onnxruntime (com.microsoft) with those of ONNX,
            `keep` leaves them alone; None writes those so that `target` does not import.
        element_type: Type that takes the place of bfloat16 everywhere, in inputs, outputs and
            caches too, for opsets and runtimes that lack it. `float16` is refused for constants
            that it does not hold.
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
            it runs at these alone, with all that follows from them folded.
        static: Whether the result must have numbers for all sizes, and no node that reads one;
            what the model itself fixes is folded too.

    Returns:
        The lowered model, whose inputs and outputs have the names, types, order and, but for
        `dims`, shapes of those of `model`; and the report. Nothing is written: `kv.save` does that.

    Raises:
        Refused: If a node cannot be lowered, sizes contradict each other, something stays that is
            not `static`, or the result is not equal; `report` says why.
        UnreadableModel: If the model, or external data that is needed, cannot be read.
        UsageError: If an argument is out of its range, names what is not there, or contradicts
            another.

    Examples:
        >>> model = kv.load("decoder.onnx")
        >>> lowered, report = kv.lower(model, opset=18)
        >>> lowered.opset_imports[""], model.opset_imports[""]
        (18, 24)
        >>> report.verification.status
        'equal'
        >>> lowered, report = kv.lower(model, target="onnxruntime@1.17", verify=False)
        >>> report.target, report.target_opset
        ('onnxruntime 1.17.3', 20)
    """
    request = LowerRequest(
        model=path_of(model),
        opset=opset,
        target=target,
        only=listed("only", only),
        via=via,
        index_dtype=index_dtype,
        bounds=bounds,
        contrib=contrib,
        element_type=element_type,
        verify=verify,
        verify_steps=verify_steps,
        verify_budget=verify_budget,
        thorough=thorough,
        strict=strict,
        dims=dims or {},
        static=static,
    )
    check_request(request)
    work, report = in_memory(model, request, _lower)
    if _failed(report):
        raise Refused(report)
    note_made(work, "lowered")
    return work, report


def run(request: LowerRequest, progress: Progress = silent) -> LowerReport:
    """Carry out `kvtool lower`.

    Args:
        request: What to do.
        progress: Told of what is begun.

    Returns:
        The report; its `output` is None when nothing was written: a refusal, a result that was
        not equal, or a dry run.

    Raises:
        UsageError: If the arguments contradict each other, or the output would overwrite the input
            or, without `-o`, another file.
        UnreadableModel: If the model, or external data that is needed, cannot be read.
        KvtoolError: If the output cannot be written; nothing is left behind.
    """
    check_request(request)
    return in_files(
        request,
        _lower,
        lambda report: None if _failed(report) else _suffix(report),
        progress,
    )


def _suffix(report: LowerReport) -> str:
    """Return what the name of a result says of it: `opset18`, `onnxruntime-1.17`."""
    if report.target is None:
        return f"opset{report.target_opset}"
    runtime, version = report.target.rsplit(" ", 1)
    return f"{runtime}-{'.'.join(version.split('.')[:2])}"


def check_request(request: LowerRequest) -> None:
    """Refuse arguments that contradict each other, and operators that cannot be replaced."""
    check_choice("via", request.via, words(Via))
    check_choice("index_dtype", request.index_dtype, words(IndexDtype))
    check_choice("bounds", request.bounds, words(Bounds))
    if request.contrib is not None:
        check_choice("contrib", request.contrib, words(ContribChoice))
    if request.element_type is not None:
        check_choice("element_type", request.element_type, words(ElementType))
    check_common(request)
    if request.index_dtype == "int32" and request.via == "scatternd":
        raise UsageError(
            "ScatterND takes int64 indices only, got `int32` with `scatternd`",
            help="use `--via scatterelements`",
        )
    if request.only and request.opset is not None:
        raise UsageError(
            "`--only` keeps the opset of the model, so that `--opset` cannot be given with it",
            help="leave one of them out",
        )
    if request.only and request.contrib == "standard":
        raise UsageError(
            "`--only` names the operators to replace, so that `--contrib standard` cannot add to "
            "them",
            help="leave one of them out",
        )
    if request.only and request.element_type is not None:
        raise UsageError(
            "`--only` leaves all other operators unchanged, so that `--element-type` cannot "
            "change the type of them all",
            help="leave one of them out",
        )
    for name in request.only:
        _check_operator(name)
    if request.target is not None:
        _check_target(request.target, request)
    if request.opset is not None and request.opset not in LOWERED_OPSETS:
        least, most = LOWERED_OPSETS[0], LOWERED_OPSETS[-1]
        raise UsageError(f"`--opset` is {request.opset}, expected {least} to {most}")


def _check_target(name: str, request: LowerRequest) -> None:
    """Refuse a runtime that is not known, and what cannot be asked for together with one."""
    if request.only:
        raise UsageError(
            "`--only` names the operators to replace, so that `--target` cannot choose them",
            help="leave one of them out",
        )
    target = find_target(name)
    if request.opset is not None and request.opset > target.max_opset:
        raise UsageError(
            f"`--opset` is {request.opset}, and {target.asked} loads no opset above "
            f"{target.max_opset}",
            help=f"leave `--opset` out, or give at most {target.max_opset}",
        )


def _check_operator(name: str) -> None:
    """Refuse an operator that kvtool cannot replace by others."""
    if name not in operators():
        raise unknown_name(f"`{name}` is no operator of the default domain", name, operators())
    lowering = LOWERINGS.get(name)
    if not (lowering is not None and lowering.removes) and not has_body(name):
        removable = sorted(op for op, lowering in LOWERINGS.items() if lowering.removes)
        raise UsageError(
            f"kvtool cannot replace `{name}` by other operators",
            help=f"it can replace {', '.join(removable)} and the operators with a function body",
        )


def _failed(report: LowerReport) -> bool:
    return bool(report.refused) or report.verification.fails


def _lower(
    model: ir.Model, request: LowerRequest, source: ir.Model | None, progress: Progress
) -> LowerReport:
    """Lower a model in place, check and verify it.

    Args:
        model: The model to work on.
        request: What was asked for.
        source: The model as it was; None when it can be read again.
        progress: Told of what is begun.
    """
    verifier = prepared(model, request, progress)
    wide, change = None, TypeChange()
    if request.element_type is not None:
        progress("changing the element type")
        wide = dtype_named(request.element_type)
        assert wide is not None
        change = change_element_type(model, wide)
    options = Options(
        via=request.via, index_dtype=request.index_dtype or "int64", bounds=request.bounds
    )
    target = None if request.target is None else find_target(request.target)
    release = None if target is None else target.release
    opset, reasons = request.opset or DEFAULT_OPSET, list[str]()

    def lowered() -> Outcome:
        nonlocal opset, reasons
        if target is not None and request.opset is None:  # which sizes may decide on
            opset, reasons = highest_opset(model, target.release, target.max_opset)
        kept = None if request.only else opset
        return legalise(model, kept, options, request.only, release, contrib=request.contrib)

    progress("lowering")
    if change.refused:
        source_opset = model.opset_imports.get("", 0)
        outcome = Outcome(source_opset, min(opset, source_opset), refused=change.refused)
    else:
        with collector_paused():
            asks = (
                "" if release is None or release.static is None else f"{release} {release.static}"
            )
            if request.dims or request.static or asks:
                outcome = rewrite_fixed(
                    model,
                    request.dims,
                    opset,
                    lowered,
                    static=request.static or bool(asks),
                    asks="" if request.static else asks,
                    keeps_opset=bool(request.only),
                )
            else:
                outcome = lowered()
        if wide is None:
            outcome.refused = naming_the_flag(outcome.refused)
    outcome.notes[:0] = change.notes
    report = _report(model, request, outcome)
    if target is not None:
        report.target = target.asked
        report.notes = [*_stand_in(target), *reasons, *report.notes]
    if outcome.refused:
        report.verification = Verification("skipped", detail="the model was not lowered")
        return report
    report.verification = proven(
        model, source or request.model, verifier, report.notes, progress, widened=wide
    )
    return report


def _stand_in(target: Target) -> list[str]:
    """Say which release stands for one that is not known."""
    if target.is_known:
        return []
    return [f"{target.asked} has the limits of {target.release}, the next known release below"]


def _report(model: ir.Model, request: LowerRequest, outcome: Outcome) -> LowerReport:
    return LowerReport(
        model=request.model or origin(model).name,
        output=None,
        source_opset=outcome.source_opset,
        target_opset=outcome.target_opset,
        ir_version=model.ir_version,
        lowered=outcome.lowered,
        refused=outcome.refused,
        notes=outcome.notes,
    )
