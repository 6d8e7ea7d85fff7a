"""Tensors in the model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location, Severity
from onnx_kvtool.core.storage import MAX_MESSAGE_BYTES, stored_tensor, tensor_bytes
from onnx_kvtool.core.words import counted
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Findings, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.model_io.verbatim import SparseInitializer
from onnx_kvtool.ops.traits import contradiction

_INT64 = 7
_MOST_READ = 1 << 20


@check("MD406")
def proto_over_2gb(context: Context) -> Findings:
    """Add up sizes; no value is read."""
    total = largest = 0
    place = Location()
    for where, tensor in context.tensors:
        if isinstance(tensor, ir.ExternalTensor):
            continue
        size = tensor_bytes(tensor)
        total += size
        if size > largest:
            largest, place = size, where
    if total > MAX_MESSAGE_BYTES:
        yield Found(
            Location(),
            f"the tensors in the model take {total:,} bytes, `{place.value}` alone "
            f"{largest:,}, and a protobuf message has {MAX_MESSAGE_BYTES:,} at most",
            help="store the weights as external data: "
            "`onnx.save_model(..., save_as_external_data=True)`",
        )


@check("MD452")
def undefined_element_type(context: Context) -> Findings:
    """Look at the type of each tensor."""
    for place, tensor in context.tensors:
        if tensor.dtype.name == "UNDEFINED":
            yield Found(
                place,
                f"the tensor `{tensor.name or place.value}` has no element type",
                help="export the model again",
            )


@check("MD454")
def bad_sparse_tensor(context: Context) -> Findings:
    """Check each sparse tensor as the file has it."""
    for place, tensor in _sparse(context):
        problem = _problem(tensor)
        if problem is not None:
            name = tensor.values.name or place.value
            yield Found(
                place,
                f"the sparse tensor `{name}` {problem}",
                help="make it dense, or export the model again",
            )


def _sparse(context: Context) -> Iterator[tuple[Location, Any]]:
    for place, tensor in context.tensors:
        if isinstance(tensor, SparseInitializer):
            yield place, tensor.raw
    for site in context.sites:
        for attribute in site.node.attributes.data.values():
            if not attribute.type.name.startswith("SPARSE_TENSOR") or attribute.is_ref():
                continue
            stored_tensor = attribute.value
            for sparse in stored_tensor if isinstance(stored_tensor, tuple) else (stored_tensor,):
                yield site.location(attribute.name), sparse


def _problem(tensor: Any) -> str | None:
    """Return what is wrong first with a sparse tensor."""
    values, indices, dims = tensor.values, tensor.indices, list(tensor.dims)
    if len(values.dims) != 1:
        return f"has values of rank {len(values.dims)}, expected 1"
    if not dims or min(dims) <= 0:
        return f"has the dense shape {dims}, expected positive dimensions"
    count = values.dims[0]
    if not tensor.HasField("indices"):
        return f"has {count} values and no indices" if count else None
    if indices.data_type != _INT64:
        return "has indices of another type than int64"
    shape = list(indices.dims)
    wanted = [count] if len(shape) == 1 else [count, len(dims)]
    if shape != wanted:
        return f"has indices of shape {shape}, expected {wanted}"
    return _order_problem(indices, [math.prod(dims)] if len(shape) == 1 else dims)


def _order_problem(indices: Any, limits: list[int]) -> str | None:
    count = math.prod(indices.dims)
    if indices.data_location == 1 or count > _MOST_READ:  # 1 is external
        return None
    raw = indices.raw_data
    stored = (
        np.frombuffer(raw, "<i8") if raw and len(raw) % 8 == 0 else np.array(indices.int64_data)
    )
    if stored.size != count:
        return f"has {stored.size} indices, and their shape says {count}"
    table = stored.reshape(-1, len(limits))
    outside = ((table < 0) | (table >= np.array(limits))).any(axis=1)
    if outside.any():
        at = int(outside.argmax())
        return f"has the index {table[at].tolist()} at {at}, outside of {limits}"
    rows = [tuple(row) for row in table.tolist()]
    for at, (one, other) in enumerate(itertools.pairwise(rows)):
        if other <= one:
            return f"has the index {list(other)} at {at + 1} behind {list(one)}, not in order"
    return None


@check("MD456")
def misdeclared_constant(context: Context) -> Findings:
    """Look at each constant as the file declares it."""
    for path, graph in context.graphs:
        for value in graph.initializers.values():
            yield from _look(context, value, Location(path, value=value.name))
    constants = [
        finding
        for site in context.sites_of("Constant")
        for value in site.node.outputs
        if not value.is_graph_output()  # ON615
        for finding in _look(context, value, site.location(value))
    ]
    if constants:
        first, more = constants[0], len(constants) - 1
        others = f" ({counted(more, 'more Constant')})" if more else ""
        yield replace(first, message=f"{first.message}{others}")


def _look(context: Context, value: ir.Value, place: Location) -> Findings:
    type_, shape = context.declared(value)
    text = contradiction(ir.Value(type=type_, shape=shape, const_value=stored_tensor(value)))
    if text is None:
        return
    severity: Severity | None = None
    what, help = "initializer", "correct the declaration, or the data"
    if not value.is_graph_input() and not value.is_graph_output():
        severity, help = "warning", "correct the entry of `value_info`, or leave it out"
    if place.op is not None:
        what, severity = "Constant", "info"
    yield Found(place, f"{what} `{value.name}` {text}", help=help, severity=severity)
