"""The stage of `raise` for caches that grow: each gets a fixed capacity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache, RotatedCache
from onnx_kvtool.analysis.caches.find import find_caches
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.model import clone
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.dead import remove_dead
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.raise_report import CacheSource, Raised, RaisedCache, Unraised
from onnx_kvtool.rewrite.raising.columns.grown import grown_values
from onnx_kvtool.rewrite.raising.growing.attended import check_attention
from onnx_kvtool.rewrite.raising.growing.circulate import Circulating
from onnx_kvtool.rewrite.raising.growing.edit import Edit
from onnx_kvtool.rewrite.raising.growing.growth import Growth, growth_of
from onnx_kvtool.rewrite.raising.growing.naming import forget_lengths, name_lengths
from onnx_kvtool.rewrite.raising.growing.position import Position, position_of
from onnx_kvtool.rewrite.raising.growing.sizes import Sizes
from onnx_kvtool.rewrite.raising.growing.window import Rolling, is_rolling, rolling_of
from onnx_kvtool.rewrite.raising.in_functions import inline_tagged, remove_tags, tag_nodes
from onnx_kvtool.rewrite.raising.stage import (
    RaiseOutcome,
    RaiseSettings,
    scopes_of,
    without_capacity,
)
from onnx_kvtool.shapes.infer import annotate

__all__ = ["raise_growing"]

_GROWS = frozenset({"Attention", "Concat", "GroupQueryAttention", "MultiHeadAttention"})


def raise_growing(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Give every cache a fixed capacity of which it is proven that it only grows, in place.

    `present = Concat(past, new)` becomes a TensorScatter of the new rows behind those in use, and
    whoever reads the Concat reads a Slice of the rows in use. Inputs and outputs keep their names,
    order and types, with the capacity as size of the axis that grew; where no input says how many
    rows are in use, one is added. The lengths of the pasts that the model reads become that number.

    What cannot be proven stays, and so does every one of these caches without a capacity.

    Returns:
        Whether anything was replaced; the new nodes are of the opset of the result.
    """
    found = _growing(model)
    if settings.capacity is not None and any(cache.calls for cache in found):
        _open_functions(model, found, settings, outcome)
        found = _growing(model)
    if not found:
        return False
    places = {
        node: outcome.place(path, node, index)
        for path, index, node in nodes(model)
        if node.op_type in _GROWS
    }
    if settings.capacity is None:
        outcome.refused += [without_capacity(cache.past, places[cache.node]) for cache in found]
        return False
    opset = model.opset_imports[""]
    annotations = annotate(model, fully=True)
    try:
        proven = list(_proven(model, found, places, settings, outcome))
        growths = [one for one in proven if isinstance(one, Growth)]
        windows = [one for one in proven if isinstance(one, Rolling)]
        if not proven:
            return False
        try:
            sizes = Sizes.of(model, growths, windows, settings.assumptions, opset)
            position = position_of(
                model, proven, sizes, settings.assumptions, by_size=not settings.static
            )
        except Unproven as missing:
            outcome.refused += [_refusal(one.place, missing) for one in proven]
            return False
        growths = _attended(growths, sizes, opset, position, outcome)
        if not growths and not windows:
            return False
        outcome.blocked = objections(model, "raise")
        steps = {sizes.step(end) for g in growths for end in g.ends if end.node is not None}
        if settings.static and isinstance(settings.capacity, int) and len(steps) == 1:
            step = steps.pop()
            if step is not None:
                outcome.grown = grown_values(model, sizes, step, settings.dims)
        if not outcome.blocked:
            _edit(model, settings, growths, windows, sizes, position, outcome)
    finally:
        annotations.remove()
        remove_tags(model)
    return True


def _open_functions(
    model: ir.Model, found: Iterable[Cache], settings: RaiseSettings, outcome: RaiseOutcome
) -> None:
    """Inline the functions in which caches grow, in place, if that lets one be raised."""
    keys = {call.op_identifier() for cache in found for call in cache.calls}
    copy = clone(model)
    try:
        inline_tagged(copy, keys)
    except Refusal as refusal:
        outcome.notes.append(f"caches in functions are left alone: {refusal.message}")
        return
    if raise_growing(copy, settings, RaiseOutcome.of(copy)):
        tag_nodes(model, lambda node: node.op_type in _GROWS)
        outcome.notes += inline_tagged(model, keys)


def _growing(model: ir.Model) -> list[Cache]:
    """Return the caches that grow, or roll when they have grown, each once."""
    if not any(node.op_type in _GROWS for _, _, node in nodes(model)):
        return []
    found: dict[str | None, Cache] = {}
    for cache in find_caches(model, prove=False):
        if not cache.is_growing and isinstance(cache.capacity, int):
            continue  # of as many rows before a step as after it, which is no matter of a capacity
        if cache.is_growing or is_rolling(cache):
            found.setdefault(cache.past or cache.present, cache)
    return list(found.values())


def _refusal(place: Location, missing: Unproven) -> Unraised:
    return Unraised(place, missing.code, missing.message, missing.assumption)


def _proven(
    model: ir.Model,
    found: Iterable[Cache],
    places: dict[ir.Node, Location],
    settings: RaiseSettings,
    outcome: RaiseOutcome,
) -> Iterable[Growth | Rolling]:
    """Yield the caches that only grow, and those that keep the last rows; others are refused."""
    opset = model.opset_imports[""]
    outputs: dict[str | None, list[int]] = {}
    for index, value in enumerate(model.graph.outputs):
        outputs.setdefault(value.name, []).append(index)
    for cache in found:
        place = places[cache.node]
        try:
            if cache.node.domain != "":
                text = f"`{cache.node.op_type}` grows its cache itself, and is not taken apart"
                raise Unproven("inside-attention", text)
            if cache.calls:
                raise Unproven("in-function", f"`{cache.past}` grows in a model-local function")
            if is_rolling(cache):
                yield rolling_of(cache, place, model, settings.assumptions, opset)
                continue
            yield growth_of(cache, place, model.graph, outputs, opset)
        except Unproven as missing:
            outcome.refused.append(_refusal(place, missing))
        except MalformedNode as error:
            outcome.refused.append(Unraised(place, error.code, error.message))


def _edit(
    model: ir.Model,
    settings: RaiseSettings,
    growths: Sequence[Growth],
    windows: Sequence[Rolling],
    sizes: Sizes,
    position: Position,
    outcome: RaiseOutcome,
) -> None:
    """Carry out the edits of all caches."""
    capacity = settings.capacity
    assert capacity is not None
    opset = max(model.opset_imports[""], settings.opset)
    source_opset = model.opset_imports[""]
    edit = Edit(model, scopes_of(model), source_opset, opset, capacity, sizes, position)
    assumed = (*sizes.assumed, *([position.assumed] if position.assumed else ()))
    circulating = Circulating(edit)
    carrier = growths[0].past if growths else windows[0].past
    edit.begin(growths, carrier, lambda em: circulating.begin(em, windows))
    for growth in growths:
        proof = (*_sentences(growth, sizes, position), *(f"assumed: {text}" for text in assumed))
        ends = [end for end in growth.ends if end.node is not None]
        names = [(end.new.name or "", growth.present.name or "") for end in ends]
        starts = edit.starts[growth].name
        edit.run(growth)
        past = growth.past.name or ""
        for new, present in names:
            outcome.raised.append(
                Raised(
                    growth.place,
                    "growing",
                    growth.axis,
                    "linear",
                    past,
                    new,
                    starts,
                    present,
                    proof,
                    assumed,
                )
            )
        outcome.caches.append(RaisedCache(past, names[0][1], capacity, "linear", _source(growth)))
    edit.finish()
    outcome.in_use = edit.total
    if outcome.grown is not None:
        outcome.grown = outcome.grown.with_caches(edit.cut)
    name_lengths(model, edit.scopes, sizes, position)
    forget_lengths(edit.scopes, windows)
    for window in windows:
        granted = (*assumed, window.assumed)
        proof = (*_window(window, position), *(f"assumed: {text}" for text in granted))
        past, present = window.past.name or "", window.present.name or ""
        read = outcome.windows[window.node.outputs[0]] = circulating.run(window)
        scatter = read.present.producer()
        begin = None if scatter is None else scatter.inputs[2]
        outcome.raised.append(
            Raised(
                window.place,
                "rolling",
                window.axis,
                "circular",
                past,
                window.new.name or "",
                None if begin is None else begin.name,
                present,
                proof,
                granted,
            )
        )
        outcome.caches.append(RaisedCache(past, present, window.capacity, "circular", "rolling"))
        outcome.rotated.append(RotatedCache(past, "grows", window.rows))
    outcome.removed += remove_dead(edit.old)
    if (added := position.report) is not None:
        outcome.inputs_added.append(added)


def _attended(
    growths: Sequence[Growth], sizes: Sizes, opset: int, position: Position, outcome: RaiseOutcome
) -> list[Growth]:
    """Return the caches but for those of an Attention that cannot be taken apart."""
    grown: dict[ir.Node, list[Growth]] = {}
    for growth in growths:
        for end in growth.ends:
            if end.node is not None and end.node.op_type == "Attention":
                grown.setdefault(end.node, []).append(growth)
    refused: dict[Growth, Unproven] = {}
    for node, of_node in grown.items():
        missing = _lacking(node, of_node, sizes, opset, position)
        refused.update((growth, missing) for growth in of_node if missing is not None)
    outcome.refused += [_refusal(growth.place, missing) for growth, missing in refused.items()]
    return [growth for growth in growths if growth not in refused]


def _lacking(
    node: ir.Node, growths: Sequence[Growth], sizes: Sizes, opset: int, position: Position
) -> Unproven | None:
    """Return why an Attention cannot be taken apart; None where it can."""
    try:
        check_attention(node, growths, sizes, opset, position.whole)
    except Unproven as missing:
        return missing
    return None


def _window(window: Rolling, position: Position) -> Iterable[str]:
    past, rows = window.past.name, window.rows
    yield f"`{window.present.name}` is the last {rows} rows of `{past}` and new ones"
    yield f"caches start empty, so that `{past}` has {rows} rows, or as many as there were tokens"
    yield f"the row of position p is row p mod {window.capacity} of the circular cache"
    yield position.proof


def _source(growth: Growth) -> CacheSource:
    inside = any(end.node is not None and end.node.op_type == "Attention" for end in growth.ends)
    return "attention" if inside else "concat"


def _sentences(growth: Growth, sizes: Sizes, position: Position) -> Iterable[str]:
    past, present = growth.past.name, growth.present.name
    yield f"`{present}` is `{past}` with new rows behind it along axis {growth.axis}"
    if len(growth.ends) > 1:
        yield "a branch that does without the past hands out the first rows of a sequence"
    yield f"nothing of `{past}` is read but its sizes"
    if len(sizes.lengths) > 1:
        yield "all caches are of one length before a step"
    yield position.proof
