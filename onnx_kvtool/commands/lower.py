"""`kvtool lower`: its request, the checks of it, and the work."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import LowerRequest
from onnx_kvtool.commands.rewriting import in_files, in_memory, prepared, proven
from onnx_kvtool.core.choices import DEFAULT_OPSET
from onnx_kvtool.core.errors import UsageError, refuse
from onnx_kvtool.core.machine import Progress, check_verified, collector_paused, silent
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.model_io.model import note_made, origin
from onnx_kvtool.ops.schema import has_body, operators
from onnx_kvtool.ops.traits import dtype_named
from onnx_kvtool.rewrite.element_type import TypeChange, naming_the_flag
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.fixing.fix import rewrite_fixed
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.report import LowerReport, Outcome, Refused, Verification
from onnx_kvtool.targets.limits import highest_opset
from onnx_kvtool.targets.target import find_target


@asked(LowerRequest)
def lower(request: LowerRequest) -> tuple[ir.Model, LowerReport]:
    """Return an equal model for an older opset, and the report of what was done.

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
    check_request(request)
    work, report = in_memory(request, _lower)
    if _failed(report):
        raise Refused(report)
    note_made(work, "lowered")
    return work, report


def run(request: LowerRequest, progress: Progress = silent) -> LowerReport:
    """Carry out `kvtool lower`.

    Args:
        request: What to do.
        progress: Receives the current activity.

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
    """Return the suffix of the output's name: `opset18`, `onnxruntime-1.17`."""
    if report.target is None:
        return f"opset{report.target_opset}"
    runtime, version = report.target.rsplit(" ", 1)
    return f"{runtime}-{'.'.join(version.split('.')[:2])}"


def check_request(request: LowerRequest) -> None:
    """Refuse arguments that contradict each other, and operators that cannot be replaced."""
    check_verified(request.verify, vars(request))
    refuse(
        (
            request.index_dtype == "int32" and request.via == "scatternd",
            "ScatterND takes int64 indices only, got `int32` with `scatternd`",
            "use `--via scatterelements`",
        ),
        (
            request.only and request.opset is not None,
            "`--only` keeps the opset of the model, so that `--opset` cannot be given with it",
            "leave one of them out",
        ),
        (
            request.only and request.contrib == "standard",
            "`--only` names all operators to replace, and `--contrib standard` would add others",
            "leave one of them out",
        ),
        (
            request.only and request.element_type is not None,
            "`--only` leaves other operators unchanged, and `--element-type` changes all of them",
            "leave one of them out",
        ),
    )
    for name in request.only:
        _check_operator(name)
    if request.target is not None:
        _check_target(request.target, request)


def _check_target(name: str, request: LowerRequest) -> None:
    """Refuse an unknown runtime, and options that contradict it."""
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
    """Lower a model in place, check and verify it; see `Rewrite`."""
    verifier = prepared(model, request, progress)
    wide, change = None, TypeChange(model)
    if request.element_type is not None:
        progress("changing the element type")
        wide = dtype_named(request.element_type)
        assert wide is not None
        change.run(wide)
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
            asks = f"{release} {release.static}" if release and release.static else ""
            if request.sizes or request.static or asks:
                outcome = rewrite_fixed(
                    model,
                    request.sizes,
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
    report = LowerReport(
        path_in(request.model) or origin(model).name,
        None,
        outcome.source_opset,
        outcome.target_opset,
        model.ir_version,
        outcome.lowered,
        outcome.refused,
        outcome.notes,
    )
    if target is not None:
        report.target = target.asked
        if not target.is_known:
            known = f"{target.release}, the next known release below"
            reasons.insert(0, f"{target.asked} has the limits of {known}")
        report.notes = [*reasons, *report.notes]
    if outcome.refused:
        report.verification = Verification("skipped", detail="the model was not lowered")
        return report
    before = source or request.model
    report.verification = proven(model, before, verifier, report.notes, progress, widened=wide)
    return report
