"""Raise a model: read, prove, rewrite, check, verify, write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.commands.rewriting import (
    check_data,
    check_dims,
    check_output,
    check_result,
    output_path,
    write_result,
)
from onnx_kvtool.core.collector import collector_paused
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.model import clone, origin, read
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.rewrite.raise_ import LOWEST_OPSET, raise_updates
from onnx_kvtool.rewrite.raise_report import RaiseReport
from onnx_kvtool.rewrite.raising.assumptions import Assumptions
from onnx_kvtool.rewrite.raising.run_dims import dims_to_run
from onnx_kvtool.rewrite.report import Refused, Verification
from onnx_kvtool.rewrite.verify import Verifier

__all__ = ["RaiseRequest", "raise_", "run"]


@dataclass(frozen=True, slots=True)
class RaiseRequest:
    """What `kvtool raise` was asked to do.

    Attributes:
        model: Path of the model, or `-` for standard input.
        output: Path to write, `-` for standard output; None for `<stem>.raised.onnx` beside the
            input.
        in_place: Whether the result replaces the input.
        external_data: How data files reach an output in another directory; None: as fits.
        dry_run: Whether to do everything but write.
        opset: Lowest opset of the result; a model that is at a later one stays there.
        assume: What may be taken for granted, as `--assume` takes it.
        require_all: Whether a candidate that stays as it was is a failure.
        verify: True forces verification, False switches it off, None verifies unless the weights
            are too large to be run.
        verify_steps: Number of decode steps per case; None for the default.
        dims: Values of symbolic dimensions, for the inputs of verification.
    """

    model: str
    output: str | None = None
    in_place: bool = False
    external_data: Literal["reference", "link", "copy"] | None = None
    dry_run: bool = False
    opset: int = LOWEST_OPSET
    assume: tuple[str, ...] = ()
    require_all: bool = False
    verify: bool | None = None
    verify_steps: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)


def raise_(
    model: ir.Model | str | os.PathLike[str],
    *,
    opset: int = LOWEST_OPSET,
    assume: Sequence[str] = (),
    require_all: bool = False,
    verify: bool | None = None,
    verify_steps: int | None = None,
    dims: Mapping[str, int] | None = None,
) -> tuple[ir.Model, RaiseReport]:
    """Return an equal model whose proven cache updates are TensorScatter, and the report.

    Args:
        model: A model, which is not changed, or the path of one.
        opset: Lowest opset of the result, at least 24; a model that is at a later one stays there,
            and one without anything to raise stays as it is.
        assume: What may be taken for granted where the graph does not say it: `contiguous[:VALUE]`,
            `same-dim:A=B`, `in-range[:VALUE]`, `finite[:VALUE]`.
        require_all: Whether a candidate that cannot be raised is a failure.
        verify: True forces the comparison of both models, False switches it off, None compares
            unless the weights are too large to be run.
        verify_steps: Number of decode steps per case; None for the default.
        dims: Values of symbolic dimensions, for the inputs of verification.

    Raises:
        Refused: If the result is not equal, the model cannot come to the opset, or, with
            `require_all`, a candidate stays; `report` says why.
        UnreadableModel: If the model, or external data that is needed, cannot be read.
        UsageError: If an argument cannot be meant.
    """
    path = "" if isinstance(model, ir.Model) else os.fspath(model)
    request = RaiseRequest(
        model=path,
        opset=opset,
        assume=tuple(assume),
        require_all=require_all,
        verify=verify,
        verify_steps=verify_steps,
        dims=dims or {},
    )
    _check_request(request)
    work = clone(model) if isinstance(model, ir.Model) else read(path)
    source = model if isinstance(model, ir.Model) else None
    report = _raise(work, request, source)
    if failed(report, request):
        raise Refused(report)
    return work, report


def run(request: RaiseRequest) -> RaiseReport:
    """Carry out `kvtool raise`.

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
    model = read(request.model)
    check_output(request)
    source = clone(model) if request.model == "-" else None
    report = _raise(model, request, source)
    if failed(report, request) or request.dry_run or not report.raised:
        return report
    write_result(model, request, output_path(request, "raised"), report)
    return report


def failed(report: RaiseReport, request: RaiseRequest) -> bool:
    """Return whether a raise ended in a failure (exit 1)."""
    return bool(
        report.blocked
        or report.verification.status == "different"
        or (request.require_all and report.refused)
    )


def _check_request(request: RaiseRequest) -> None:
    """Refuse an opset without TensorScatter, and assumptions that are none."""
    if not LOWEST_OPSET <= request.opset <= NEWEST:
        raise UsageError(f"`opset` is {request.opset}, expected {LOWEST_OPSET} to {NEWEST}")
    Assumptions.parse(request.assume)


def _raise(model: ir.Model, request: RaiseRequest, source: ir.Model | None) -> RaiseReport:
    """Raise a model in place, check and verify it.

    Args:
        model: The model to work on.
        request: What was asked for.
        source: The model as it was; None when it can be read again.
    """
    check_data(model, request)
    check_dims(model, request.dims)
    assumptions = Assumptions.parse(request.assume)
    assumptions.check(model)
    verifier = None
    if request.verify is not False:
        verifier = Verifier(
            model,
            steps=request.verify_steps,
            dims=request.dims,
            force=request.verify is True,
        )
    with collector_paused():
        outcome = raise_updates(model, request.opset, assumptions)
    report = RaiseReport(
        model=request.model or origin(model).path,
        output=None,
        source_opset=outcome.source_opset,
        target_opset=outcome.target_opset,
        ir_version=model.ir_version,
        raised=[] if outcome.blocked else outcome.raised,
        refused=outcome.refused,
        blocked=outcome.blocked,
        removed=outcome.removed,
        notes=outcome.notes,
    )
    if not report.raised:
        report.verification = Verification("skipped", detail="nothing was raised")
        return report
    check_result(model, source or request.model, report.notes)
    if verifier is None:
        report.verification = Verification("skipped", detail="switched off with `--no-verify`")
    else:
        dims = dims_to_run(outcome.equal_dims, request.dims)
        report.verification = verifier.compare(model, dims=dims, positions=outcome.positions)
    return report
