"""Inspect a model: read it without its weights, count, find the caches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache, find_caches
from onnx_kvtool.analysis.caches.neighbourhood import neighbourhood
from onnx_kvtool.analysis.inspection import InspectReport, describe, list_nodes
from onnx_kvtool.commands.arguments import check_dims
from onnx_kvtool.commands.python_words import speaking_python
from onnx_kvtool.core.collector import collector_paused
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.files.external_data import external_files
from onnx_kvtool.core.held import ModelSource, held
from onnx_kvtool.core.model import read
from onnx_kvtool.core.origin import origin
from onnx_kvtool.core.progress import Progress, silent
from onnx_kvtool.shapes.infer import annotate

__all__ = ["InspectRequest", "inspect", "run"]

_PROVEN = frozenset({"scatter_nd", "scatter_elements", "where"})
"""Kinds of which more can be said when the shapes of the index computation are known."""


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What `kvtool inspect` was asked to do.

    Attributes:
        model: Path of the model, or `-` for standard input.
        dims: Values of symbolic dimensions.
        nodes: Whether to list the nodes.
        output: Path to write the report to, `-` or None for standard output.
    """

    model: str
    dims: Mapping[str, int] = field(default_factory=dict)
    nodes: bool = False
    output: str | None = None


@speaking_python
def inspect(
    model: ModelSource,
    *,
    dims: Mapping[str, int] | None = None,
    nodes: bool = False,
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

    Raises:
        UnreadableModel: If the model cannot be read.
        UsageError: If no input has a dimension that `dims` names.

    Examples:
        >>> report = kv.inspect("decoder.onnx", dims={"batch": 4})
        >>> for cache in report.caches:
        ...     print(cache.past, cache.shape, cache.bytes_per_token, cache.in_place.possible)
        key_cache.0 (4, 32, 32) 128 True
        value_cache.0 (4, 32, 32) 128 True
        key_cache.1 (4, 32, 32) 128 True
        value_cache.1 (4, 32, 32) 128 True
    """
    loaded = held(model)
    return _inspect(loaded, origin(loaded).path, dims or {}, nodes)


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
    progress("reading the model")
    model = read(request.model)
    if request.output is not None and request.output != "-":
        _spare_model(model, request.output)
    progress("looking for caches")
    return _inspect(model, request.model, request.dims, request.nodes)


def _spare_model(model: ir.Model, output: str) -> None:
    """Refuse to write the report over a file of the model."""
    source = origin(model).path
    files = [file.path for file in external_files(model)]
    for path in files if source == "-" else [source, *files]:
        if os.path.realpath(path) == os.path.realpath(output):
            raise UsageError(
                f"`{output}` belongs to the model, which would be overwritten",
                help="name another file for the report",
            )


def _inspect(model: ir.Model, path: str, dims: Mapping[str, int], nodes: bool) -> InspectReport:
    if dims:
        check_dims(model, dims)
    with collector_paused():
        caches, notes = _caches(model)
        facts, inputs, outputs, ops = describe(model, path, dims)
        return InspectReport(
            model=facts,
            inputs=inputs,
            outputs=outputs,
            ops=ops,
            caches=tuple(cache.bind(dims) for cache in caches),
            nodes=list_nodes(model) if nodes else None,
            notes=tuple(notes),
            neighbourhoods=tuple(neighbourhood(model, cache) for cache in caches),
        )


def _caches(model: ir.Model) -> tuple[tuple[Cache, ...], list[str]]:
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
