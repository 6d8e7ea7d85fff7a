"""Proofs of attention, with the assumptions that a user grants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.analysis.attention.fusing import Fusion
from onnx_kvtool.analysis.caches.find import find_caches
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import values
from onnx_kvtool.rewrite.raise_report import Unraised
from onnx_kvtool.rewrite.raising.stage import Assumptions, RaiseSettings, unraised
from onnx_kvtool.shapes.attention import prove_each
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim, dims_of, normal, read_size
from onnx_kvtool.symbolic.expressions import Dimension, text

Candidate = tuple[Location, ir.Node]
"""A Softmax, and where it stood in the source."""


def prove_all(
    model: ir.Model, candidates: list[Candidate], settings: RaiseSettings
) -> tuple[list[tuple[Location, Fusion]], list[Unraised], list[str]]:
    """Return what is proven, what is not, and remarks.

    Candidates that lack a fact are tried again with the dimensions that are granted to be equal, so
    that the report says where these were needed.
    """
    granted = settings.assumptions
    try:
        found = _each(model, candidates, settings)
        lacking = [number for number, one in enumerate(found) if isinstance(one, Unraised)]
        whole = covering(model, granted) if lacking else {}
        dims = (*(pair for pairs in whole.values() for pair in pairs), *granted.dims)
        if lacking and dims:
            with common_names(model, dims):
                again = _each(model, [candidates[number] for number in lacking], settings)
            assumed = tuple(f"assumed: {text}" for text in (*granted.same_dims, *whole))
            for number, one in zip(lacking, again, strict=True):
                found[number] = one
                if isinstance(one, Fusion):
                    found[number] = replace(one, sentences=(*one.sentences, *assumed))
    except KvtoolError as error:
        return [], [], [f"attention is left alone: {error}"]
    pairs = zip(candidates, found, strict=True)
    proven = [(place, one) for (place, _), one in pairs if isinstance(one, Fusion)]
    return proven, [one for one in found if isinstance(one, Unraised)], []


def _each(
    model: ir.Model, candidates: list[Candidate], settings: RaiseSettings
) -> list[Fusion | Unraised]:
    """Return what becomes of each candidate.

    Raises:
        KvtoolError: If the sizes of the model cannot be inferred.
    """
    granted, capacity = settings.assumptions, settings.capacity
    unpadded = {v: text for v in model.graph.inputs if (text := granted.grants("unpadded", v))}
    # The result fails in a step past the capacity, and need not be equal there.
    rows = dict.fromkeys(_growing(model), capacity) if isinstance(capacity, int) else {}
    softmaxes = [node for _, node in candidates]
    proven = prove_each(model, softmaxes, settings.attention, unpadded, rows)
    found: list[Fusion | Unraised] = []
    for (place, _), one in zip(candidates, proven, strict=True):
        if isinstance(one, Fusion):
            found.append(one)
            continue
        lost = unraised(place, one)  # which does not advise what is granted already
        is_granted = lost.assumption in granted.granted
        found.append(replace(lost, assumption=None) if is_granted else lost)
    return found


def _growing(model: ir.Model) -> Iterator[tuple[ir.Value, ir.Value, int]]:
    """Yield past, present and axis of each cache of the model that grows."""
    outputs = {value.name: value for value in model.graph.outputs}
    for cache in find_caches(model, prove=False):
        past, present = cache.past_value, outputs.get(cache.present)
        if not cache.is_growing or past is None or present is None or cache.axis is None:
            continue
        if past.is_graph_input():
            yield past, present, cache.axis


def covering(model: ir.Model, granted: Assumptions) -> dict[str, list[tuple[Dim, Dim]]]:
    """Return, by granted text, the lengths of caches that an input is granted to have."""
    totals = {(dims_of(present) or ())[axis:][:1] for _, present, axis in _growing(model)}
    found: dict[str, list[tuple[Dim, Dim]]] = {}
    for value in model.graph.inputs:
        why, (size,) = granted.grants("covers-past", value), (dims_of(value) or (None,))[-1:]
        if why is not None and isinstance(size, str):
            found[why] = [(total, size) for (total,) in sorted(totals) if isinstance(total, str)]
    return found


@contextlib.contextmanager
def common_names(model: ir.Model, dims: Sequence[tuple[Dim, Dim]]) -> Iterator[None]:
    """Give dimensions that are granted to be equal one name on all values, for a while."""
    equal = SizeEqualities(dims)
    before = [(value, value.shape) for value in values(model) if value.shape is not None]
    for value, _ in before:
        old = list(dims_of(value) or ())
        found = [_common(dim, equal) for dim in old]
        if found != old:
            value.shape = ir.Shape(found)
    try:
        yield
    finally:
        for value, shape in before:
            value.shape = shape


def _common(dim: Dim, equal: SizeEqualities) -> Dim:
    size = equal.of_dim(dim)
    if size is None or size.number is not None:
        return dim if size is None else size.number
    if not isinstance(dim, str) or not isinstance(size.atom, Dimension):
        return dim
    if size.atom.name != normal(dim):
        return size.atom.name
    declared = read_size(dim)
    common = equal.resolved(declared)
    return dim if common == declared else text(common)
