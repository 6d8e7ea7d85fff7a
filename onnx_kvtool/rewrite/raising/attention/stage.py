"""The stage of `raise` for attention in many nodes, in the graph and in functions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import QUERY
from onnx_kvtool.analysis.attention.fusing import Fusion, is_candidate, sinks_noted
from onnx_kvtool.analysis.caches.find import find_caches
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import is_op, nodes, values
from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.ops.view import given_input
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.engine.rule import remove_dead
from onnx_kvtool.rewrite.raise_report import RaisedAttention, Unraised
from onnx_kvtool.rewrite.raising.attention.circular import read_circular
from onnx_kvtool.rewrite.raising.attention.fixed_masks import FIXED, emit_fixed_mask, emit_hidden
from onnx_kvtool.rewrite.raising.attention.replacing import write
from onnx_kvtool.rewrite.raising.attention.whole import (
    WHY_IN_USE,
    WHY_WHOLE,
    WholeMask,
    read_in_use,
    read_whole,
)
from onnx_kvtool.rewrite.raising.columns.widening import Widening, widen
from onnx_kvtool.rewrite.raising.growing.growth import is_rolling
from onnx_kvtool.rewrite.raising.in_functions import open_functions, place_of, remove_tags
from onnx_kvtool.rewrite.raising.stage import (
    GROWN,
    Assumptions,
    RaiseOutcome,
    RaiseSettings,
    scopes_of,
    unraised,
)
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.shapes.proven_attention import prove_each
from onnx_kvtool.shapes.writing import Writer, forget_composed, may_rest_on
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim, bind_dim, dims_of, normal, read_size
from onnx_kvtool.symbolic.expressions import Dimension, text
from onnx_kvtool.symbolic.knowledge import Knowledge

# The stage of `raise` for attention in many nodes.


_MASK = 3


def raise_growing_attention(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome
) -> bool:
    """Replace attention over caches that are about to become fixed ones, in place.

    Now sizes say that attention reads past and new rows; afterwards it reads a slice whose end is
    computed. `raise_attention` tries again what is not proven here.

    Return whether anything was replaced; the new nodes are of the opset of the result.
    """
    if settings.capacity is None:
        return False
    return _raise(model, settings, outcome, growing=True)


def raise_attention(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Replace attention in many nodes by one Attention, in place, wherever that is proven.

    A function stays unless attention in it is proven at one of its calls.

    Return whether anything was replaced; the new nodes are of the opset of the result.
    """
    functions = len(model.functions)
    if settings.attention != "keep":
        outcome.notes += sinks_noted(model, outcome.place)

        def prove(copy: ir.Model) -> tuple[list[Location], list[Unraised]]:
            found = (node for _, _, node in nodes(copy) if is_candidate(node))
            candidates = [(place, node) for node in found if (place := place_of(node))]
            proven, refused, notes = prove_all(copy, candidates, settings)
            outcome.notes += notes
            return [place for place, _ in proven], refused

        outcome.refused += open_functions(model, is_candidate, prove, "attention", outcome.notes)
    is_changed = _raise(model, settings, outcome, growing=False)
    is_changed |= len(model.functions) < functions  # whose nodes are of their own opset still
    remove_tags(model)
    if settings.attention != "keep" and not outcome.blocked:
        is_changed |= read_circular(model, settings, outcome)
    if settings.attention == "full" and not outcome.blocked:
        is_changed |= _widen(model, settings, outcome)
    return is_changed


def keep_mask_shapes(model: ir.Model) -> None:
    """Write the known sizes of the masks of Attention on them, for a later `lower`.

    A mask that is known to be the same for all heads needs no copy for each. Nothing is written if
    the model contradicts itself, and no size that needs another one not to be 0.
    """
    masks = [
        mask
        for mask in _masks(model)
        if mask is not None and mask.producer() is not None and not mask.is_graph_output()
    ]
    if not masks:
        return
    inference = infer_model(model)
    if assumed := inference.run.knowledge.assumed:
        inference = infer_model(model, granted=Knowledge(may_be_empty=frozenset(assumed)))
    if not may_rest_on(inference.run.knowledge):
        return
    writer = Writer(inference.run, frozen=False)
    for mask in masks:
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
        proven, refused, note = prove_all(model, candidates, settings)
        if growing:
            # More is known of a window once it is a circular cache.
            rolling = {cache.node for cache in find_caches(model, prove=False) if is_rolling(cache)}
            proven = [
                (place, one)
                for place, one in proven
                if (one.grows_by or (one.mask == "kept" and not rolling))
                and not one.grows_by & rolling
            ]
            outcome.growing = {one.location: one for one in refused}
        else:
            # The sizes of the source say more than those of slices of a cache.
            outcome.refused += [
                outcome.growing.get(one.location, one) if one.code == "sizes-unrelated" else one
                for one in refused
            ]
            outcome.notes += note
        outcome.blocked = objections(model, "raise") if proven else []
        if proven and not outcome.blocked:
            _edit(model, proven, settings, scopes, outcome)
    finally:
        masks = _masks(model) if proven else {}
        for value, type_ in before:
            if value not in masks:  # whose type says with what to pad them
                value.type = type_
    return bool(proven)


def _masks(model: ir.Model) -> dict[ir.Value | None, None]:
    """Return the masks of Attention, in the order of the nodes."""
    found = (n for _, _, n in nodes(model) if is_op(n, "Attention"))
    return dict.fromkeys(given_input(node, _MASK) for node in found)


def _edit(
    model: ir.Model,
    proven: list[tuple[Location, Fusion]],
    settings: RaiseSettings,
    scopes: Mapping[ir.Graph, ScopedValues],
    outcome: RaiseOutcome,
) -> None:
    """Carry out all fusions, and report them in the order of the source."""
    target = settings.target(model)
    old: list[ir.Node] = []
    moved: dict[ir.Value, ir.Value | None] = {}
    counted: dict[ir.Value, str] = {}
    # A mask that layers share stands where the first of them is written.
    order = {node: number for number, (_, _, node) in enumerate(nodes(model))}
    for place, fusion in sorted(proven, key=lambda one: order[one[1].last]):
        em = Emitter.at(fusion.softmax, scopes, target, "kvtool/attention")
        result = fusion.weighted.result
        uses = tuple(result.uses())
        attention, unread = write(_as_it_is(fusion, moved), em)
        if fusion.form == "sliced" and fusion.masking.causal == "written":
            read_in_use(attention, target, em.scope, counted)
        if uses:
            moved[result] = uses[0].node.inputs[uses[0].idx]
        old += unread
        outcome.places = {**outcome.places, attention: place}
        if fusion.masking.function is not None:
            outcome.masks[attention] = fusion.masking.function, fusion.frame.sizes[QUERY]
    told = {(done.location, done.form, done.mask) for done in outcome.attention}
    for place, one in proven:
        # A function that is called twice is one place.
        if (key := (place, one.form, one.mask)) not in told:
            told.add(key)
            outcome.attention.append(RaisedAttention(*key, (*one.sentences, *_why(one, settings))))
    outcome.unpadded |= {v.name or "" for _, one in proven for v in one.masking.unpadded}
    outcome.removed += remove_dead(old)
    if any(text.startswith("assumed: ") for _, one in proven for text in one.sentences):
        outcome.equal_dims += settings.assumptions.dims


def _why(fusion: Fusion, settings: RaiseSettings) -> tuple[str, ...]:
    """Return why `auto` chose the rows in use, or the whole capacity."""
    if settings.attention != "auto":
        return ()
    if fusion.form == "full":
        return (WHY_WHOLE,)
    return (WHY_IN_USE,) if fusion.grows_by and settings.capacity is not None else ()


def _as_it_is(fusion: Fusion, moved: Mapping[ir.Value, ir.Value | None]) -> Fusion:
    """Return a fusion that reads the values that earlier edits put in place of its operands.

    One attention may read the result of another.
    """
    operands = tuple(o._replace(value=moved.get(o.value) or o.value) for o in fusion.operands)
    queries, keys, values_ = operands
    parts = tuple(p._replace(value=moved.get(p.value) or p.value) for p in fusion.masking.parts)
    masking = fusion.masking._replace(parts=parts)
    return fusion._replace(operands=(queries, keys, values_), masking=masking)


def _widen(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Let each written Attention read whole caches in the place of the rows in use."""
    scopes = scopes_of(model)
    target = settings.target(model)
    # Attention of the source may have a mask that is shorter than its keys.
    written = {done.location for done in outcome.attention}
    old: list[ir.Node] = []
    found, grown = Widening(), outcome.grown
    if grown is not None and outcome.in_use is not None:
        found = widen(model.graph, grown, outcome.in_use, target, scopes[model.graph])
    for _, _, node in list(nodes(model)):
        is_written = node in outcome.places and outcome.places[node] in written
        if node.op_type != "Attention" or node.graph not in scopes:
            continue
        if not is_written and given_input(node, _MASK) not in found.wide:
            continue
        mask_of = _fixed_mask(node, settings, outcome, found.wide)
        scope = scopes[node.graph]
        unread = read_whole(node, target, scope, mask_of, found.wide, outcome.in_use)
        if unread is not None:
            old += unread
            how = "mask" if node.inputs[_MASK] is not None else "number of rows in use"
            sentence = f"rows of the caches that are not in use are hidden by the {how}"
            if is_written:
                outcome.tell(node, sentence, form="full")
    outcome.removed += remove_dead([*old, *found.old])
    remove_dead(found.new)
    if grown is not None:
        for value in model.graph.inputs:
            readers = {n for n, _ in value.uses()}.intersection(found.new)
            if readers or GROWN in grown.shapes.get(value, ()):
                outcome.columns[value] = grown.capacity
            for reader in readers:
                reader.metadata_props[FIXED] = "1"
    for node, lost in found.stuck:
        if _is_read(node):
            text = f"{lost.message}, so that no capacity fixes the size of what it gives"
            outcome.stuck.append(replace(lost, message=text))
    _fix_columns(model, outcome)
    return bool(old or found.new)


def _fixed_mask(
    node: ir.Node,
    settings: RaiseSettings,
    outcome: RaiseOutcome,
    wide: Mapping[ir.Value, ir.Value],
) -> WholeMask | None:
    """Return the writer of the mask of an Attention with fixed sizes; None if there is none."""
    capacity, known = settings.capacity, outcome.masks.get(node)
    if not settings.static or not isinstance(capacity, int):
        return None
    if known is None:
        given = given_input(node, _MASK)
        held = None if given is None else wide.get(given)
        if held is None:
            return None
        return lambda mask, count, em: emit_hidden(held, capacity, count, em)
    function, queries = known
    length = bind_dim(queries.number or text(queries), settings.dims)
    if not isinstance(length, int):
        return None  # it is refused, as every symbolic dimension

    def write_mask(mask: ir.Value, count: ir.Value, em: Emitter) -> ir.Value:
        outcome.columns.update(dict.fromkeys(function.inputs, capacity))
        return emit_fixed_mask(function, mask, capacity, length, count, em)

    return write_mask


def _is_read(node: ir.Node) -> bool:
    """Return whether an output of a graph depends on a node."""
    waiting, seen = [node], {node}
    while waiting:
        one = waiting.pop()
        for value in one.outputs:
            if value.is_graph_output():
                return True
            users = {user for user, _ in value.uses()} - seen
            seen |= users
            waiting += users
    return False


def _fix_columns(model: ir.Model, outcome: RaiseOutcome) -> None:
    """Give inputs that mark the rows with tokens a column for each row of a cache.

    An input that other nodes read stays as long as the rows in use, and is refused.
    """
    for value, count in outcome.columns.items():
        if value.shape is None:
            continue
        if all(n.metadata_props.get(FIXED) or not _is_read(n) for n, _ in value.uses()):
            value.shape = ir.Shape([value.shape[0], count])
            what = "it says nothing about rows that are not in use"
            outcome.notes.append(f"`{value.name}` is {count} long: {what}")
    for _, _, node in nodes(model):
        node.metadata_props.pop(FIXED, None)


# Proofs of attention, with the assumptions that a user grants.


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
                    found[number] = one._replace(sentences=(*one.sentences, *assumed))
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
    proven = prove_each(model, softmaxes, settings.attention, (unpadded, rows))
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
