"""Inspect a model: read it without its weights, count, find the caches."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache, find_caches
from onnx_kvtool.analysis.caches.neighbourhood import neighbourhood
from onnx_kvtool.analysis.caches.whatif import Question, answer
from onnx_kvtool.analysis.inspection import InspectReport, describe, list_nodes
from onnx_kvtool.commands.arguments import asked, check_dims, spare_model
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import InspectRequest
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.machine import Progress, collector_paused, silent
from onnx_kvtool.core.words import bytes_of, unknown_name
from onnx_kvtool.model_io.model import origin, read
from onnx_kvtool.model_io.model_source import open_model
from onnx_kvtool.model_io.remote import requests, shown
from onnx_kvtool.ops.traits import DTYPE_NAMES, dtype_named
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.dimensions import names_in

_PROVEN = frozenset({"scatter_nd", "scatter_elements", "where"})
"""Kinds whose positions follow from the shapes of the index computation."""


@asked(InspectRequest)
def inspect(request: InspectRequest) -> InspectReport:
    """Return the summary of a model and the table of its caches.

    Weights are not read, and data files need not be there. A model that onnx's checker rejects is
    inspected all the same.

    Raises:
        UnreadableModel: If the model cannot be read.
        UsageError: If no input has a dimension that `dims` names, or a question is none.

    Examples:
        >>> report = kv.inspect("decoder.onnx", dims={"batch": 4})
        >>> for cache in report.caches:
        ...     print(cache.past, cache.shape, cache.bytes_per_token, cache.in_place.possible)
        key_cache.0 (4, 32, 32) 128 True
        value_cache.0 (4, 32, 32) 128 True
        key_cache.1 (4, 32, 32) 128 True
        value_cache.1 (4, 32, 32) 128 True
    """
    question = _question(request)
    with requests(request.timeout) as notes:
        loaded = open_model(request.model)
        return _inspect(loaded, origin(loaded).name, request, question, notes)


def run(request: InspectRequest, progress: Progress = silent) -> InspectReport:
    """Carry out `kvtool inspect`, but for the writing of the report.

    Args:
        request: What to do.
        progress: Receives the current activity.

    Raises:
        UnreadableModel: If the model cannot be read.
        UsageError: If no input has a dimension that `dims` names, or the report would overwrite the
            model.
    """
    question = _question(request)
    with requests(request.timeout) as notes:
        progress("reading the model")
        model = read(path_in(request.model))
        spare_model(model, request.output)
        progress("looking for caches")
        return _inspect(model, shown(path_in(request.model)), request, question, notes)


def _question(request: InspectRequest) -> Question:
    """Return the question about the caches.

    Raises:
        UsageError: If a number of rows, a type or a size is invalid.
    """
    dim, equals, number = str(request.capacity or "").rpartition("=")
    if request.capacity is not None and not (number.isdecimal() and int(number)):
        raise UsageError(
            f"`--capacity` is `{request.capacity}`, expected N or NAME=N with N of at least 1"
        )
    dtype = None if request.cache_dtype is None else dtype_named(request.cache_dtype)
    if request.cache_dtype is not None and dtype in (None, ir.DataType.STRING):
        raise unknown_name(
            f"there is no element type `{request.cache_dtype}` for a cache",
            request.cache_dtype,
            [name for name in DTYPE_NAMES if name != "string"],
        )
    return Question(
        capacity=int(number) if number else None,
        dim=dim if equals else None,
        dtype=dtype,
        memory=_size("--memory", request.memory),
        bandwidth=_size("--bandwidth", request.bandwidth),
    )


def _size(flag: str, given: int | str | None) -> int | None:
    """Return the bytes for a text such as `24GiB`; None for None."""
    size = None if given is None else bytes_of(str(given).removesuffix("/s"))
    if given is not None and not size:
        raise UsageError(f"`{flag}` is `{given}`, expected a size such as `24GiB`")
    return size


def _inspect(
    model: ir.Model,
    path: str,
    request: InspectRequest,
    question: Question,
    remarks: Sequence[str],
) -> InspectReport:
    dims = request.sizes
    if dims:
        check_dims(model, dims)
    with collector_paused():
        caches, notes = caches_of(model)
        facts, inputs, outputs, ops = describe(model, path, dims)
        bound = tuple(cache.bind(dims) for cache in caches)
        sizes = [cache.capacity for cache in bound if isinstance(cache.capacity, str)]
        names = sorted({name for size in sizes for name in names_in(size)})
        if question.dim is not None and question.dim not in names:
            text = f"no cache has a capacity called `{question.dim}`"
            raise unknown_name(text, question.dim, names)
        if "Softmax" in ops:
            from onnx_kvtool.analysis.attention.fusing import sinks_noted

            notes += sinks_noted(model)
        return InspectReport(
            model=facts,
            inputs=inputs,
            outputs=outputs,
            ops=ops,
            caches=bound,
            nodes=list_nodes(model) if request.nodes else None,
            notes=(*remarks, *notes),
            neighbourhoods=tuple(neighbourhood(model, cache) for cache in caches),
            whatif=answer(question, bound, facts.weight_bytes) if question.is_asked else None,
        )


def caches_of(model: ir.Model) -> tuple[tuple[Cache, ...], list[str]]:
    """Find the caches, with inferred shapes if these may prove more; leave the model unchanged."""
    caches = find_caches(model, prove=False)
    if not any(cache.kind in _PROVEN for cache in caches):
        return caches, []
    try:
        annotations = annotate(model, frozen=True)
    except KvtoolError as error:
        return caches, [f"shapes were not inferred: {error.message}"]
    notes = [] if annotations.failure is None else [annotations.failure]
    try:
        return find_caches(model), notes
    finally:
        annotations.remove()
