"""Inspect a model: read it without its weights, count, find the caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache, find_caches
from onnx_kvtool.analysis.caches.neighbourhood import neighbourhood
from onnx_kvtool.analysis.caches.whatif import Question, answer
from onnx_kvtool.analysis.inspection import InspectReport, describe, list_nodes
from onnx_kvtool.commands.arguments import check_dims, spare_model, speaking_python
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.machine import Progress, collector_paused, silent
from onnx_kvtool.core.words import bytes_of, unknown_name
from onnx_kvtool.model_io.model import read
from onnx_kvtool.model_io.model_source import ModelSource, open_model, path_of
from onnx_kvtool.model_io.origin import origin
from onnx_kvtool.model_io.remote import requests, shown
from onnx_kvtool.ops.traits import DTYPE_NAMES, dtype_named
from onnx_kvtool.shapes.infer import annotate
from onnx_kvtool.symbolic.dimensions import names_in

__all__ = ["InspectRequest", "caches_of", "inspect", "run"]

_PROVEN = frozenset({"scatter_nd", "scatter_elements", "where"})
"""Kinds of which more can be said when the shapes of the index computation are known."""


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What `kvtool inspect` was asked to do.

    Attributes:
        model: Path of the model, or `-` for standard input.
        dims: Values of symbolic dimensions.
        nodes: Whether to list the nodes.
        capacity: Rows of each cache, or `NAME=N` for those of the dimension NAME; None for those
            that the caches have.
        cache_dtype: Element type of the caches; None for the one that each has.
        memory: What weights and caches may take, such as `24GiB`; None when that is not asked.
        bandwidth: What memory gives in a second, such as `100GB`; None when that is not asked.
        timeout: Seconds that each request to a web server may take; None for five minutes.
        output: Path to write the report to, `-` or None for standard output.
    """

    model: str
    dims: Mapping[str, int] = field(default_factory=dict)
    nodes: bool = False
    capacity: str | None = None
    cache_dtype: str | None = None
    memory: str | None = None
    bandwidth: str | None = None
    timeout: float | None = None
    output: str | None = None


@speaking_python
def inspect(
    model: ModelSource,
    *,
    dims: Mapping[str, int] | None = None,
    nodes: bool = False,
    capacity: int | str | None = None,
    cache_dtype: str | None = None,
    memory: int | str | None = None,
    bandwidth: int | str | None = None,
    timeout: float | None = None,
) -> InspectReport:
    """Return the summary of a model and the table of its caches.

    Weights are not read, and data files need not be there. A model that onnx's checker rejects is
    inspected all the same.

    Args:
        model: A model (an `onnx_ir.Model` or an `onnx.ModelProto`), which is not changed, or the
            path of one.
        dims: Values of symbolic dimensions; they replace the names in every shape of the report, so
            that bytes can be counted.
        nodes: Whether to list the nodes.
        capacity: What if each cache had so many rows, or (`NAME=N`) those whose capacity is the
            dimension NAME; the report then has `whatif`.
        cache_dtype: What if caches had this element type, such as `float8e4m3fn`; the scales of
            quantised rows, if any, are not counted.
        memory: How many sequences fit into so many bytes, or a text such as `24GiB`, beside the
            weights.
        bandwidth: How many tokens memory allows that gives so many bytes in a second, or a text
            such as `100GB`.
        timeout: Seconds that each request to a web server may take, where the model is at a URL;
            None for five minutes.

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
    texts = (None if given is None else str(given) for given in (capacity, memory, bandwidth))
    rows, room, speed = texts
    request = InspectRequest(
        model=path_of(model),
        dims=dims or {},
        nodes=nodes,
        capacity=rows,
        cache_dtype=cache_dtype,
        memory=room,
        bandwidth=speed,
    )
    question = _question(request)
    with requests(timeout) as notes:
        loaded = open_model(model)
        return _inspect(loaded, origin(loaded).name, request, question, notes)


def run(request: InspectRequest, progress: Progress = silent) -> InspectReport:
    """Carry out `kvtool inspect`, but for the writing of the report.

    Args:
        request: What to do.
        progress: Told of what is begun.

    Raises:
        UnreadableModel: If the model cannot be read.
        UsageError: If no input has a dimension that `dims` names, or the report would overwrite the
            model.
    """
    question = _question(request)
    with requests(request.timeout) as notes:
        progress("reading the model")
        model = read(request.model)
        if request.output is not None and request.output != "-":
            spare_model(model, request.output)
        progress("looking for caches")
        return _inspect(model, shown(request.model), request, question, notes)


def _question(request: InspectRequest) -> Question:
    """Return what is asked about the caches.

    Raises:
        UsageError: If a number of rows, a type or a size is none.
    """
    dim, equals, number = (request.capacity or "").rpartition("=")
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


def _size(flag: str, text: str | None) -> int | None:
    """Return the bytes that a text gives; None for none."""
    size = None if text is None else bytes_of(text.removesuffix("/s"))
    if text is not None and not size:
        raise UsageError(f"`{flag}` is `{text}`, expected a size such as `24GiB`")
    return size


def _inspect(
    model: ir.Model,
    path: str,
    request: InspectRequest,
    question: Question,
    said: Sequence[str],
) -> InspectReport:
    dims = request.dims
    if dims:
        check_dims(model, dims)
    with collector_paused():
        caches, notes = caches_of(model)
        facts, inputs, outputs, ops = describe(model, path, dims)
        bound = tuple(cache.bind(dims) for cache in caches)
        if question.dim is not None:
            _check_capacity_dim(bound, question.dim)
        return InspectReport(
            model=facts,
            inputs=inputs,
            outputs=outputs,
            ops=ops,
            caches=bound,
            nodes=list_nodes(model) if request.nodes else None,
            notes=(*said, *notes),
            neighbourhoods=tuple(neighbourhood(model, cache) for cache in caches),
            whatif=answer(question, bound, facts.weight_bytes) if question.is_asked else None,
        )


def _check_capacity_dim(caches: Sequence[Cache], name: str) -> None:
    """Refuse a dimension that is the capacity of no cache."""
    names = {n for c in caches if isinstance(c.capacity, str) for n in names_in(c.capacity)}
    if name not in names:
        raise unknown_name(f"no cache has a capacity called `{name}`", name, sorted(names))


def caches_of(model: ir.Model) -> tuple[tuple[Cache, ...], list[str]]:
    """Find the caches; where more could be said of one, with the shapes that inference finds.

    The shapes are taken off the values again: the model is not changed.
    """
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
