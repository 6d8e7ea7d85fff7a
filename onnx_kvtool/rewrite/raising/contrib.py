"""The stage of `raise` for operators of onnxruntime: they become operators of ONNX."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.core.choices import AttentionForm, AttentionMask
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op, maker, nodes, supersede
from onnx_kvtool.emit.emitter import Emitter, Names, Refusal
from onnx_kvtool.ops.contrib import CONTRIB_ATTENTIONS, DOMAIN, ContribAttention, kept_window
from onnx_kvtool.ops.view import given_input, given_integer
from onnx_kvtool.rewrite.contrib.standardise import Standardised, standardise
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.engine.rule import remove_dead
from onnx_kvtool.rewrite.raise_report import (
    CacheSource,
    RaisedAttention,
    RaisedCache,
    Standardized,
    Unraised,
)
from onnx_kvtool.rewrite.raising.attention.whole import WHY_IN_USE_GROUPED, read_in_use
from onnx_kvtool.rewrite.raising.stage import (
    RaiseOutcome,
    RaiseSettings,
    raised,
    scopes_of,
    without_capacity,
)
from onnx_kvtool.symbolic.dimensions import dims_of

_GROUPED = "GroupQueryAttention"
_AXIS = 2
_WRITES = (
    "the operator writes its new rows from `seqlens_k` + 1 less their number on, in a prompt from 0"
    " on"
)
_SEES = "the operator is attention over the rows that are valid after the update"
_LONGEST = "rows behind those of the longest sequence are hidden from all, and are not read"


def raise_contrib(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Write operators of onnxruntime with operators of ONNX, in place.

    A cache of GroupQueryAttention that grows gets the capacity first, so that it is written in
    place; without a capacity such a node stays as it is, and the stage of growing caches says so.

    Return whether anything was replaced; the new nodes are of the opset of the result.
    """
    if settings.contrib == "keep":
        return False
    caches = dict(_growing(model))
    resized = [] if settings.capacity is None else _resized(caches, settings.capacity)
    waiting = frozenset(caches) if settings.capacity is None else frozenset()
    masks = {node: _mask(node) for _, _, node in nodes(model) if _is_grouped(node)}
    places = {node: outcome.place(path, node, i) for path, i, node in nodes(model)}
    try:
        found = standardise(
            model, Names(model), lambda node: node not in waiting, opset=settings.opset
        )
    except Refusal as refusal:
        for _, value, shape in resized:
            value.shape = shape
        outcome.notes.append(f"operators in functions are left alone: {refusal.message}")
        return False
    for node, value, shape in resized:
        if node.graph is not None:  # it was refused
            value.shape = shape
    outcome.refused += [
        without_capacity(pairs[0][0].name, places[node])
        for node, pairs in caches.items()
        if node in waiting
    ]
    outcome.refused += [Unraised(one.location, one.code, one.message) for one in found.refused]
    if not found.done:
        return False
    outcome.blocked = objections(model, "raise")
    outcome.contrib += [Standardized(done.location, done.rule) for done in found.done]
    if settings.static:
        _start_prompts(model, found, settings)
    narrowed = _narrow(model, found, settings)
    by_place = {places[node]: mask for node, mask in masks.items()}
    is_chosen = settings.attention == "auto"
    _report(model, found, by_place, narrowed, outcome, is_chosen=is_chosen)
    return True


def _start_prompts(model: ir.Model, found: Standardised, settings: RaiseSettings) -> None:
    """Write a prompt from row 0 on, also where the number of all tokens is that of the capacity.

    The operator knows a prompt by that number. A prompt has no more tokens than new rows, and any
    other step has as many before these: `(valid - L) * is_later` is `max(valid - L, 0)`.
    """
    scopes = scopes_of(model)
    for _, _, node in list(nodes(model)):
        is_made = is_op(node, "TensorScatter") and node.name in found.origins
        start = given_input(node, 2) if is_made else None
        product = maker(start, "Mul")
        if start is None or product is None:
            continue
        em = Emitter.at(product, scopes, settings.opset, "kvtool/raise")
        before = em.op("Max", product.inputs[0], [0], hint="write_indices")
        before.shape = start.shape
        em.insert_before(product)
        supersede(start, before)
        remove_dead([product])


def _narrow(model: ir.Model, found: Standardised, settings: RaiseSettings) -> set[ir.Node]:
    """Let Attention read the rows in use, unless it is to read whole caches; return where."""
    if settings.static or settings.attention not in ("auto", "sliced"):
        return set()
    opset = settings.target(model)
    names: dict[ir.Value, str] = {}
    scopes = scopes_of(model)
    return {
        node
        for _, _, node in list(nodes(model))
        if is_op(node, "Attention")
        and node.name in found.origins
        and node.graph in scopes
        and read_in_use(node, opset, scopes[node.graph], names)
    }


def _is_grouped(node: ir.Node) -> bool:
    return node.domain == DOMAIN and node.op_type == _GROUPED


def _growing(model: ir.Model) -> Iterator[tuple[ir.Node, list[tuple[ir.Value, ir.Value]]]]:
    """Yield each GroupQueryAttention with caches that grow, and these, past and present.

    They are inputs and outputs of the model that nobody else reads.
    """
    for node in model.graph:
        if not _is_grouped(node) or kept_window(node) is not None:
            continue
        view, slots = ContribAttention(node), CONTRIB_ATTENTIONS[_GROUPED].caches
        found = [(view.input(slot.past), view.output(slot.present)) for slot in slots]
        pairs = [(a, b) for a, b in found if a is not None and b is not None and _may_grow(a, b)]
        if len(pairs) == len(slots):
            yield node, pairs


def _may_grow(past: ir.Value, present: ir.Value) -> bool:
    """Return whether a cache that is the node's alone may have more rows after a step."""
    if not past.is_graph_input() or len(past.uses()) != 1:
        return False
    if not present.is_graph_output() or present.uses():
        return False
    before, after = dims_of(past), dims_of(present)
    if before is None or len(before) <= _AXIS:
        return False
    return before[_AXIS] is None or after is None or before[_AXIS] != after[_AXIS]


def _resized(
    caches: dict[ir.Node, list[tuple[ir.Value, ir.Value]]], capacity: int | str
) -> list[tuple[ir.Node, ir.Value, ir.Shape | None]]:
    """Give caches a number of rows, in place; return the shapes that they had."""
    every = [(node, pair) for node, pairs in caches.items() for pair in pairs]
    had = [(node, value, value.shape) for node, pair in every for value in pair]
    for _, (past, present) in every:
        dims = list(dims_of(past) or ())
        dims[_AXIS] = capacity
        past.shape, present.shape = ir.Shape(dims), ir.Shape(dims)
    return had


def _mask(node: ir.Node) -> AttentionMask:
    view, window = ContribAttention(node), given_integer(node, "local_window_size")
    if view.input("attention_bias") is not None:
        return "kept"
    if window is not None and window > 0:
        return "window"
    return "none" if given_integer(node, "causal") == 0 else "causal"


def _report(
    model: ir.Model,
    found: Standardised,
    masks: dict[Location, AttentionMask],
    narrowed: set[ir.Node],
    outcome: RaiseOutcome,
    *,
    is_chosen: bool,
) -> None:
    """Say which caches are updated by TensorScatter now, and which attention is one Attention."""
    for _, _, node in nodes(model):
        place = found.origins.get(node.name or "")
        if place is None or place not in masks:
            continue
        if node.op_type == "TensorScatter":
            past, present = node.inputs[0], node.outputs[0]
            assert past is not None
            grown = past.producer()
            if grown is not None and grown.name in found.origins and not present.is_graph_output():
                continue  # beside the rows that a window keeps
            values = *node.inputs[:3], present
            source: CacheSource = "group_query_attention"
            done = raised(place, source, _AXIS, "linear", values, (_WRITES,))
            outcome.raised.append(done)
            if past.is_graph_input() and present.is_graph_output():
                rows = (dims_of(past) or (None,) * 4)[_AXIS]
                cache = RaisedCache(done.past, done.present, rows, "linear", source)
                outcome.caches.append(cache)
        elif node.op_type == "Attention":
            form: AttentionForm = "sliced" if node in narrowed else "full"
            proof: tuple[str, ...] = (_SEES,)
            if form == "sliced":
                proof = (_SEES, _LONGEST, *([WHY_IN_USE_GROUPED] if is_chosen else []))
            outcome.attention.append(RaisedAttention(place, form, masks[place], proof))
