"""Compare two models by structure and names."""

from __future__ import annotations

import os
from dataclasses import replace

import onnx
import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked, spare_model
from onnx_kvtool.commands.inspect import caches_of
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import DiffRequest
from onnx_kvtool.core.choices import DiffPart, DiffWeights, PrintedWeights
from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.core.machine import Progress, collector_paused, silent
from onnx_kvtool.model_io.external_data import external_files
from onnx_kvtool.model_io.model import origin, read
from onnx_kvtool.model_io.model_source import open_model, path_of
from onnx_kvtool.model_io.places import NOTHING
from onnx_kvtool.model_io.remote import requests
from onnx_kvtool.review.compare import compare_models
from onnx_kvtool.review.digests import Digests
from onnx_kvtool.review.report import DiffReport


@asked(DiffRequest)
def diff(request: DiffRequest) -> DiffReport:
    """Return what changed between two models; leaves both unchanged.

    Nodes are matched by what they compute, by their readers and by name. Their order does not
    matter, so a model that was sorted or saved again is the same. The report lists values, nodes
    and dimensions with a new name as renamed, and nodes with the readers of removed ones as their
    replacement.

    Raises:
        UnreadableModel: If a model, or external data that is needed, cannot be read.
        UsageError: If `weights` or a part in `fail_on` is none of these words.

    Examples:
        >>> model = kv.load("decoder.onnx")
        >>> kv.diff("decoder.onnx", model).status
        'same'
        >>> model.graph.inputs[0].name = "tokens"
        >>> [(name.kind, name.old, name.new) for name in kv.diff("decoder.onnx", model).renamed]
        [('input', 'input_ids', 'tokens')]
    """
    path_of(request.old), path_of(request.new)
    with requests(request.timeout) as notes:
        report = _diff(open_model(request.old), open_model(request.new), request.weights)
    report.notes[:0] = notes
    report.fail_on = _parts(request)
    return report


def _parts(request: DiffRequest) -> tuple[DiffPart, ...] | None:
    return None if request.fail_on is None else tuple(request.fail_on)


def run(
    request: DiffRequest, progress: Progress = silent, *, may_lack_data: bool = False
) -> DiffReport:
    """Carry out `kvtool diff`, but for the writing of the report.

    Args:
        request: What to do.
        progress: Receives the current activity.
        may_lack_data: Whether to compare as with `embedded` if a data file is missing: git passes
            a version of a model without its data files.

    Raises:
        UnreadableModel: If a model, or external data that is needed, cannot be read.
        UsageError: If both models are standard input, or the report would overwrite one.
    """
    if request.old == request.new == "-":
        raise UsageError("both models are standard input", help="name a file for one of them")
    with requests(request.timeout) as notes:
        progress("reading the models")
        models = read(path_in(request.old)), read(path_in(request.new))
        for model in models:
            spare_model(model, request.output)
        progress("comparing")
        weights = request.weights
        if may_lack_data and weights in ("values", "digest"):
            files = (file.path for model in models for file in external_files(model))
            if not all(map(os.path.exists, files)):
                weights = "embedded"
        report = _diff(*models, weights)
    report.notes[:0] = notes
    report.fail_on = _parts(request)
    return report


def run_for_git(
    request: DiffRequest, names: tuple[str, str], progress: Progress = silent
) -> DiffReport:
    """Carry out `kvtool diff` for git, which would stop at the first failure.

    The report says if a model was added or removed, or if a version is no model.

    Args:
        request: What to do; a missing side is `NOTHING`.
        names: Path of the file in both versions; git stores the models elsewhere.
        progress: Receives the current activity.
    """
    try:
        if NOTHING in (request.old, request.new):
            report = _added_or_removed(request)
        else:
            report = run(request, progress, may_lack_data=True)
    except UnreadableModel as error:
        note = error.message.replace(f"`{request.new}`", f"`{names[1]}`")
        note = note.replace(f"`{request.old}`", f"the old version of `{names[0]}`")
        report = DiffReport("", "", file="unreadable", notes=[note])
    report.old, report.new = names
    return report


def _added_or_removed(request: DiffRequest) -> DiffReport:
    nothing = onnx.ModelProto(ir_version=1)
    nothing.graph.name = "main_graph"
    empty = open_model(nothing)
    is_added = request.old == NOTHING
    there = read(path_in(request.new if is_added else request.old))
    report = _diff(*((empty, there) if is_added else (there, empty)), "none")
    report.file = "added" if is_added else "removed"
    report.renamed = []  # the graph
    report.metadata = [
        replace(change, old=None) if is_added else replace(change, new=None)
        for change in report.metadata
    ]
    return report


def _diff(old: ir.Model, new: ir.Model, weights: DiffWeights) -> DiffReport:
    reads: PrintedWeights = "digest" if weights == "values" else weights
    digests = Digests(reads, require=True)
    caches, notes = [], list[str]()
    for model in (old, new):
        found, remarks = caches_of(model)
        caches.append(found)
        notes += [f"`{origin(model).name}`: {note}" for note in remarks]
    try:
        with collector_paused():
            report = compare_models(old, new, caches, digests, how_much=weights == "values")
    except UnreadableModel as error:
        help = error.help if weights in ("embedded", "none") else _HELP
        raise UnreadableModel(error.message, help=help) from error
    report.notes += notes
    return report


_HELP = "put the data file beside the model, or leave out its weights with `--weights embedded`"
