"""Infer types and shapes: read, infer, compare with declarations, write on request."""

from __future__ import annotations

import os
from collections.abc import Mapping

import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked, check_dims
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.output import default_output, write_result
from onnx_kvtool.commands.requests import InferRequest
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.machine import Progress, collector_paused, silent
from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.external_data import check_external_data, external_files
from onnx_kvtool.model_io.model import note_made, origin, read
from onnx_kvtool.model_io.model_source import open_model
from onnx_kvtool.model_io.places import check_output, check_source, in_directory, spoken_name
from onnx_kvtool.model_io.remote import is_remote, requests, shown
from onnx_kvtool.model_io.sorting import sort_nodes
from onnx_kvtool.shapes.annotations import correct_constants
from onnx_kvtool.shapes.inference import Inference, InferReport, infer_model

_ANOTHER = "name another file with `-o OUT`"


@asked(InferRequest)
def infer(request: InferRequest) -> tuple[ir.Model, InferReport]:
    """Return a copy of a model with the type and shape of every value, and what was found.

    Weights are not read, and data files need not be there. Nothing is raised for a conflict or a
    value that stays unknown: the report has them, and `report.failed` counts them up.

    Raises:
        UnreadableModel: If the model cannot be read.
        UsageError: If no input has a dimension that `dims` names.
        KvtoolError: If the model cannot be copied, or has a part without a written form.

    Examples:
        >>> inferred, report = kv.infer("decoder.onnx")
        >>> report.values, report.known_before, report.known_after
        (74, 62, 74)
        >>> report.failed
        False
    """
    with requests(request.timeout) as notes:
        work = open_model(request.model)
        order = sort_nodes(work)
        inference = _infer(work, origin(work).path, request.sizes, request.strict)
        inference.annotate()
    inference.report.notes[:0] = (*notes, *order)
    note_made(work, "inferred")
    return work, inference.report


def run(request: InferRequest, progress: Progress = silent) -> InferReport:
    """Carry out `kvtool infer`.

    Args:
        request: What to do.
        progress: Receives the current activity.

    Returns:
        The report; its `output` is None when nothing was written: none was asked for, or the
        report is a failed one.

    Raises:
        UnreadableModel: If the model cannot be read, or its external data cannot be trusted where
            the result refers to it.
        UsageError: If no input has a dimension that `dims` names, or the output is the input.
        KvtoolError: If the model must not be rewritten, or the output cannot be written; nothing
            is left behind.
    """
    with requests(request.timeout) as notes:
        report = _run(request, progress)
    report.notes[:0] = notes
    return report


def _run(request: InferRequest, progress: Progress) -> InferReport:
    path = path_in(request.model)
    check_source(path, remote=True)
    check_output(path, request.output, _ANOTHER)
    progress("reading the model")
    model = read(path)
    notes = sort_nodes(model)
    if request.output is not None:
        _check_sound(model)
        if is_remote(path) and external_files(model):
            raise UsageError(
                f"the data of {spoken_name(path)} lies at a URL, and the result would "
                "refer to it in its own directory",
                help="fetch the model with its data files first",
            )
        check_external_data(model, need_bytes=False)
    progress("inferring shapes")
    inference = _infer(model, shown(path), request.sizes, request.strict)
    report = inference.report
    if request.output is None:
        return report  # whose result does not depend on the order of nodes
    report.notes[:0] = notes
    if not report.failed:
        inference.annotate(frozen=True)
        inference.refuse_what_onnx_does()
    if report.failed:
        what = "a conflict" if report.conflicts else "an unknown value"
        report.notes.append(f"nothing was written because of {what}")
        return report
    progress("writing the result")
    output = in_directory(request.output, os.path.basename(default_output(path, "inferred")))
    check_output(path, output, _ANOTHER)
    write_result(model, output, report, is_named=output == request.output)
    return report


def _infer(model: ir.Model, path: str, dims: Mapping[str, int], strict: bool) -> Inference:
    if dims:
        check_dims(model, dims)
    with collector_paused():
        corrected = [value.name for value, _, _ in correct_constants(model, initializers=False)]
        inference = infer_model(model, dims)
    if corrected:
        what = counted(len(corrected), "Constant")
        inference.report.notes.append(
            f"{what} declared with the wrong type or shape: `{corrected[0]}`"
        )
    inference.report.model = path
    inference.report.strict = strict
    return inference


def _check_sound(model: ir.Model) -> None:
    """Refuse to write a model that onnx_ir read differently from its file."""
    for defect in origin(model).defects:
        if defect.severity == "error":
            raise KvtoolError(
                f"the model cannot be written: {defect.location}: {defect.message}",
                help="infer without `-o`, which shows what is known of it",
            )
