"""The stage of `raise` for attention in many nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.analysis.attention.fusing import Fusion, is_candidate
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import nodes, values
from onnx_kvtool.rewrite.engine.dead import remove_dead
from onnx_kvtool.rewrite.engine.emit import Emitter, ScopedValues
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.raise_report import RaisedAttention, Unraised
from onnx_kvtool.rewrite.raising.attention.whole import read_whole
from onnx_kvtool.rewrite.raising.attention.writing import write
from onnx_kvtool.rewrite.raising.stage import RaiseOutcome, RaiseSettings, scopes_of
from onnx_kvtool.shapes.attention import prove_each
from onnx_kvtool.shapes.filling import forget_composed, may_rest_on
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.shapes.writing import Writer
from onnx_kvtool.symbolic.atoms import Dimension
from onnx_kvtool.symbolic.dims import Dim, dims_of
from onnx_kvtool.symbolic.equalities import SizeEqualities

__all__ = ["keep_mask_shapes", "raise_attention", "raise_growing_attention"]

_Candidate = tuple[Location, ir.Node]
_MASK = 3


def raise_growing_attention(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome
) -> bool:
    """Replace attention over caches that are about to become fixed ones, in place.

    Before they do, what is read of a cache is past and new rows by its very sizes; afterwards it is
    a slice whose end is computed. What is not proven here is asked once more by `raise_attention`.

    Returns:
        Whether anything was replaced; the new nodes are of the opset of the result.
    """
    if settings.capacity is None:
        return False
    return _raise(model, settings, outcome, growing=True)


def raise_attention(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Replace attention in many nodes by one Attention, in place, wherever that is proven.

    What lies in functions stays.

    Returns:
        Whether anything was replaced; the new nodes are of the opset of the result.
    """
    is_changed = _raise(model, settings, outcome, growing=False)
    if settings.attention == "full" and not outcome.blocked:
        is_changed |= _widen(model, settings, outcome)
    return is_changed


def keep_mask_shapes(model: ir.Model) -> None:
    """Write on the masks of Attention what is known of their sizes, for whoever lowers it later.

    A mask that is known to be the same for all heads needs no room for each of them. Nothing is
    written on a model that contradicts itself, or whose sizes rest on others that are not 0.

    Args:
        model: The result, all of whose nodes are of one opset.
    """
    inference = infer_model(model)
    if not may_rest_on(inference.run.knowledge):
        return
    writer = Writer(inference.run, frozen=False)
    for _, _, node in nodes(model):
        if node.op_type != "Attention" or node.domain != "" or len(node.inputs) <= _MASK:
            continue
        mask = node.inputs[_MASK]
        if mask is not None and mask.producer() is not None and not mask.is_graph_output():
            writer.annotate(mask)
            forget_composed(mask)


def _raise(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome, *, growing: bool
) -> bool:
    if settings.attention == "keep":
        return False
    scopes = scopes_of(model)
    candidates = [
        (outcome.place(path, node, index), node)
        for path, index, node in nodes(model)
        if node.graph in scopes and is_candidate(node)
    ]
    if not candidates:
        return False
    before = [(value, value.type) for value in values(model)]
    proven: list[tuple[Location, Fusion]] = []
    try:
        proven, refused, note = _prove_all(model, candidates, settings)
        if growing:
            proven = [one for one in proven if one[1].is_growing]
        else:
            outcome.refused += refused
            outcome.notes += note
        outcome.blocked = objections(model, "raise") if proven else []
        if proven and not outcome.blocked:
            _edit(model, proven, settings, scopes, outcome)
    finally:
        masks = _masks(model) if proven else set()
        for value, type_ in before:
            if value not in masks:  # whose type says with what to pad them
                value.type = type_
    return bool(proven)


def _masks(model: ir.Model) -> set[ir.Value | None]:
    """Return what hides keys from Attention."""
    found = (n for _, _, n in nodes(model) if n.op_type == "Attention" and n.domain == "")
    return {node.inputs[_MASK] for node in found if len(node.inputs) > _MASK}


def _edit(
    model: ir.Model,
    proven: list[tuple[Location, Fusion]],
    settings: RaiseSettings,
    scopes: Mapping[ir.Graph, ScopedValues],
    outcome: RaiseOutcome,
) -> None:
    """Carry out all fusions, and report them in the order of the source."""
    target = max(model.opset_imports[""], settings.opset)
    old: list[ir.Node] = []
    # A mask that layers share stands where the first of them is written.
    order = {node: number for number, (_, _, node) in enumerate(nodes(model))}
    for place, fusion in sorted(proven, key=lambda one: order[one[1].last]):
        graph = fusion.softmax.graph
        assert isinstance(graph, ir.Graph)
        em = Emitter(scopes[graph], target, fusion.softmax.name or "kvtool/attention")
        attention, unread = write(fusion, em)
        old += unread
        outcome.places = {**outcome.places, attention: place}
    outcome.attention += [
        RaisedAttention(place, one.form, one.mask, one.sentences) for place, one in proven
    ]
    outcome.removed += remove_dead(old)
    if any(text.startswith("assumed: ") for _, one in proven for text in one.sentences):
        outcome.equal_dims += settings.assumptions.dims


def _widen(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Let the Attention that was written read whole caches, where it reads the rows in use."""
    scopes = scopes_of(model)
    target = max(model.opset_imports[""], settings.opset)
    rows = {done.location: number for number, done in enumerate(outcome.attention)}
    old: list[ir.Node] = []
    for _, _, node in list(nodes(model)):
        number = rows.get(outcome.places[node]) if node in outcome.places else None
        if number is None or node.op_type != "Attention" or node.graph not in scopes:
            continue
        unread = read_whole(node, target, scopes[node.graph])
        if unread is not None:
            old += unread
            done = outcome.attention[number]
            how = "mask" if node.inputs[_MASK] is not None else "number of rows in use"
            sentence = f"rows of the caches that are not in use are hidden by the {how}"
            outcome.attention[number] = replace(done, form="full", proof=(*done.proof, sentence))
    outcome.removed += remove_dead(old)
    return bool(old)


def _prove_all(
    model: ir.Model, candidates: list[_Candidate], settings: RaiseSettings
) -> tuple[list[tuple[Location, Fusion]], list[Unraised], list[str]]:
    """Return what is proven, what is not, and remarks.

    What lacks a fact is tried once more with the dimensions that are granted to be equal, so that
    the report says where that was needed.
    """
    try:
        found = _each(model, candidates, settings)
        lacking = [number for number, one in enumerate(found) if isinstance(one, Unraised)]
        if lacking and settings.assumptions.dims:
            with _granted(model, settings.assumptions.dims):
                again = _each(model, [candidates[number] for number in lacking], settings)
            assumed = tuple(f"assumed: {text}" for text in settings.assumptions.same_dims)
            for number, one in zip(lacking, again, strict=True):
                if isinstance(one, Fusion):
                    found[number] = replace(one, sentences=(*one.sentences, *assumed))
    except KvtoolError as error:
        return [], [], [f"attention is left alone: {error}"]
    pairs = zip(candidates, found, strict=True)
    proven = [(place, one) for (place, _), one in pairs if isinstance(one, Fusion)]
    return proven, [one for one in found if isinstance(one, Unraised)], []


def _each(
    model: ir.Model, candidates: list[_Candidate], settings: RaiseSettings
) -> list[Fusion | Unraised]:
    """Return what becomes of each candidate.

    Raises:
        KvtoolError: If the sizes of the model cannot be inferred.
    """
    found = prove_each(model, [node for _, node in candidates], settings.attention)
    return [
        one if isinstance(one, Fusion) else Unraised(place, one.code, str(one))
        for (place, _), one in zip(candidates, found, strict=True)
    ]


@contextlib.contextmanager
def _granted(model: ir.Model, dims: Sequence[tuple[Dim, Dim]]) -> Iterator[None]:
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
    return size.atom.name if isinstance(size.atom, Dimension) else dim
