"""Compare two models: what changed, by structure and names, for a review."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import onnx
import onnx_ir as ir

from onnx_kvtool.commands.arguments import check_choice, listed, spare_model, speaking_python
from onnx_kvtool.commands.inspect import caches_of
from onnx_kvtool.core.choices import DiffPart, DiffWeights, PrintedWeights, words
from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.core.machine import Progress, collector_paused, silent
from onnx_kvtool.model_io.external_data import external_files
from onnx_kvtool.model_io.model import read
from onnx_kvtool.model_io.model_source import ModelSource, open_model, path_of
from onnx_kvtool.model_io.origin import origin
from onnx_kvtool.model_io.places import NOTHING
from onnx_kvtool.model_io.remote import requests
from onnx_kvtool.review.compare import Reviewed, compare_models
from onnx_kvtool.review.digests import Digests
from onnx_kvtool.review.report import DiffReport

__all__ = ["DiffRequest", "diff", "run", "run_for_git"]


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """What `kvtool diff` was asked to do.

    Attributes:
        old: Path of the model as it was, or `-` for standard input.
        new: Path of the model as it is, or `-` for standard input.
        weights: Which weights are read, and what for; see `diff`.
        fail_on: The parts whose differences make the answer no; None for all.
        exit_zero: Whether differences leave the exit code at 0.
        timeout: Seconds that each request to a web server may take; None for five minutes.
        output: Path to write the report to, `-` or None for standard output.
    """

    old: str
    new: str
    weights: DiffWeights = "values"
    fail_on: tuple[DiffPart, ...] | None = None
    exit_zero: bool = False
    timeout: float | None = None
    output: str | None = None


@speaking_python
def diff(
    old: ModelSource,
    new: ModelSource,
    *,
    weights: DiffWeights = "values",
    fail_on: Sequence[DiffPart] | None = None,
    timeout: float | None = None,
) -> DiffReport:
    """Return what changed between two models, neither of which is changed.

    Nodes are matched by what they compute, by what is made of them and by name, not by their order:
    a model that was sorted or saved again is the same. A value, node or dimension with a new name
    is told as renamed. Nodes whose results are read where those of others were are told as their
    replacement.

    Args:
        old: The model as it was, or its path.
        new: The model as it is, or its path.
        weights: `values` compares digests, and reads weights that differ again to say how much.
            `digest` leaves that out. `embedded` reads what the model files themselves hold, and
            compares all others by the place of their data. `none` compares types, shapes, and
            the values of tensors of up to 16 numbers.
        fail_on: The parts whose differences make `exit_code` 1: `interface`, `caches`, `opset`,
            `metadata`, `nodes`, `weights`, `names`; None for all.
        timeout: Seconds that each request to a web server may take, where a model is at a URL; None
            for five minutes.

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
    check_choice("weights", weights, words(DiffWeights))
    parts = None if fail_on is None else cast("tuple[DiffPart, ...]", listed("fail_on", fail_on))
    for part in parts or ():
        check_choice("fail_on", part, words(DiffPart))
    path_of(old), path_of(new)
    with requests(timeout) as notes:
        report = _diff(open_model(old), open_model(new), weights)
    report.notes[:0] = notes
    report.fail_on = parts
    return report


def run(
    request: DiffRequest, progress: Progress = silent, *, may_lack_data: bool = False
) -> DiffReport:
    """Carry out `kvtool diff`, but for the writing of the report.

    Args:
        request: What to do.
        progress: Told of what is begun.
        may_lack_data: Whether `embedded` stands in for weights that want a data file which is not
            there: git hands over a version of a model without it.

    Raises:
        UnreadableModel: If a model, or external data that is needed, cannot be read.
        UsageError: If both models are standard input, or the report would overwrite one.
    """
    if request.old == request.new == "-":
        raise UsageError("both models are standard input", help="name a file for one of them")
    with requests(request.timeout) as notes:
        progress("reading the models")
        models = read(request.old), read(request.new)
        if request.output is not None and request.output != "-":
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
    report.fail_on = request.fail_on
    return report


def run_for_git(
    request: DiffRequest, names: tuple[str, str], progress: Progress = silent
) -> DiffReport:
    """Carry out `kvtool diff` for git, which would stop at the first failure.

    A model that one side does not have was added or removed. A version that is no model is told
    instead of compared.

    Args:
        request: What to do; a side that is not there is `NOTHING`.
        names: Path of the file in both versions; the model may lie elsewhere meanwhile.
        progress: Told of what is begun.
    """
    try:
        if NOTHING in (request.old, request.new):
            report = _added_or_removed(request)
        else:
            report = run(request, progress, may_lack_data=True)
    except UnreadableModel as error:
        told = error.message.replace(f"`{request.new}`", f"`{names[1]}`")
        told = told.replace(f"`{request.old}`", f"the old version of `{names[0]}`")
        report = DiffReport("", "", file="unreadable", notes=[told])
    report.old, report.new = names
    return report


def _added_or_removed(request: DiffRequest) -> DiffReport:
    nothing = onnx.ModelProto(ir_version=1)
    nothing.graph.name = "main_graph"
    empty = open_model(nothing)
    is_added = request.old == NOTHING
    there = read(request.new if is_added else request.old)
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
    sides = []
    notes: list[str] = []
    for model in (old, new):
        path = origin(model).name
        caches, said = caches_of(model)
        notes += [f"`{path}`: {note}" for note in said]
        sides.append(Reviewed(model, path, caches))
    try:
        with collector_paused():
            report = compare_models(sides[0], sides[1], digests, how_much=weights == "values")
    except UnreadableModel as error:
        help = error.help if weights in ("embedded", "none") else _HELP
        raise UnreadableModel(error.message, help=help) from error
    report.notes += notes
    return report


_HELP = "put the data file beside the model, or leave out its weights with `--weights embedded`"
