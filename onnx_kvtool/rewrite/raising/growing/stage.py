"""The stage of `raise` for caches that grow: each gets a fixed capacity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache, RotatedCache
from onnx_kvtool.analysis.caches.find import find_caches
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op, nodes, supersede
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import axis_size
from onnx_kvtool.ops.contrib import CONTRIB_ATTENTIONS
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.engine.rule import remove_dead
from onnx_kvtool.rewrite.raise_report import CacheSource, InputAdded, RaisedCache, Unraised
from onnx_kvtool.rewrite.raising.attention.stage import common_names, covering
from onnx_kvtool.rewrite.raising.columns.widening import grown_values
from onnx_kvtool.rewrite.raising.growing.edit import Edit, check_attention, with_rows
from onnx_kvtool.rewrite.raising.growing.growth import (
    Growth,
    Rolling,
    growth_of,
    is_rolling,
    rolling_of,
)
from onnx_kvtool.rewrite.raising.growing.lengths import (
    Position,
    Sizes,
    forget_lengths,
    name_lengths,
    position_of,
)
from onnx_kvtool.rewrite.raising.in_functions import open_functions, remove_tags
from onnx_kvtool.rewrite.raising.layout import TO_THE_END
from onnx_kvtool.rewrite.raising.stage import (
    GROWN,
    Grown,
    RaiseOutcome,
    RaiseSettings,
    WindowRead,
    raised,
    scopes_of,
    unraised,
    without_capacity,
)
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.dimensions import dims_of

# The edit of a window that grows: a circular cache in its place.


@dataclass(slots=True)
class Circulating:
    """The edits of all windows of one model.

    Attributes:
        rows: By R, what is known of the rows of a past in use before a step: their number as the
            size of the third, (1,); the same number, computed from the position; and their places
            in the circular cache, oldest first, (min(P, R),).
    """

    edit: Edit
    rows: dict[int, tuple[ir.Value, ir.Value, ir.Value]] = field(default_factory=dict)

    def begin(self, em: Emitter, windows: Sequence[Rolling]) -> None:
        """Build what windows of the same number of rows share, in front of all nodes."""
        edit = self.edit
        for window in windows:
            rows = window.rows
            if rows not in self.rows:
                count = em.op("Min", edit.length, [rows], hint="rows_in_window")
                first = em.op("Squeeze", em.op("Sub", edit.length, count), hint="oldest")
                positions = em.op("Range", first, edit.number, 1, hint="positions")
                order = em.op("Mod", positions, [window.capacity], hint="order")
                order.shape = ir.Shape([em.scope.names.fresh("rows_in_window")])
                self.rows[rows] = em.op("Shape", order, hint="rows_kept"), count, order
            kept = self.rows[rows][0]
            edit.lengths[window.past] = kept, em.op("Squeeze", kept, hint="length")

    def run(self, window: Rolling) -> tuple[WindowRead, ir.Value]:
        """Give one window its circular cache; return what is read of it, and the starts."""
        edit, node, past = self.edit, window.node, window.past
        for shape in window.shapes:
            edit.resize(window, shape)
        em = Emitter.at(node, edit.scopes, edit.opset, "kvtool/raise")
        kept, computed, order = self.rows[window.rows]
        rows = em.op("Gather", past, order, axis=window.axis)
        gather = em.nodes[-1]
        for head in window.heads:
            ir.convenience.replace_all_uses_with(head.outputs[0], rows)
        if not window.heads:
            node.replace_input_with(0, rows)
        self._count(em, window, rows, kept)
        output = window.present
        starts, new = self._written(em, window, rows)
        present = em.op(
            "TensorScatter",
            past,
            new,
            starts,
            axis=window.axis,
            mode="circular",
            hint="TensorScatter",
        )
        present.doc_string = output.doc_string
        supersede(output, present)
        present.name, output.name = output.name, em.scope.names.fresh(f"{output.name}_in_order")
        present.shape = with_rows(output.shape, window, window.capacity)
        past.shape = with_rows(past.shape, window, window.capacity)
        em.insert_before(node)
        edit.old += [window.cut, *window.heads]
        rank = window.axis + 1
        read = WindowRead(
            present=present,
            new=window.new,
            count=(dims_of(window.new) or (None,) * rank)[window.axis],
            gather=gather,
            order=order,
            kept=computed,
            length=edit.length,
            axis=window.axis,
            capacity=window.capacity,
        )
        return read, starts

    def _count(self, em: Emitter, window: Rolling, rows: ir.Value, kept: ir.Value) -> None:
        """Replace the number of rows, old ones or all, as Shape counts it, by a computed one."""
        joined = window.node.outputs[0]
        for value in (rows, joined):
            shapes = [n for n, _ in value.uses() if is_op(n, "Shape")]
            if not shapes:
                continue
            count = kept
            if value is joined:
                new = axis_size(em, window.new, window.axis, "new_rows")
                count = em.op("Add", kept, new, hint="rows")
            number = em.op("Squeeze", count, hint="rows")
            for shape in shapes:
                self.edit.resize(window, shape, (count, number))

    def _written(self, em: Emitter, window: Rolling, rows: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return where the first new row goes, for each sequence, and the rows that are written.

        Of more new rows than the cache has, the last ones stay.
        """
        new, axis, edit = window.new, window.axis, self.edit
        count = axis_size(em, new, axis, "new_rows")
        end = em.op("Add", edit.length, count, hint="end")
        start = em.op("Sub", end, em.op("Min", count, [window.capacity]), hint="start")
        # The size comes from the rows that were read before: if past and present share a buffer,
        # the write must wait for that read.
        batch = axis_size(em, rows, 0, "batch_size")
        starts = em.op("Expand", start, batch, hint="write_indices")
        last = em.op("Slice", new, [-window.capacity], [TO_THE_END], [axis], hint="last_rows")
        return starts, last


_MEANING = "tokens before this step, which is how many rows of each cache are in use"

_GROWS = frozenset({"Concat", *CONTRIB_ATTENTIONS})
"""Operators whose cache may grow; ONNX and onnxruntime each have an Attention."""


def raise_growing(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Give every cache that provably only grows a fixed capacity, in place.

    `present = Concat(past, new)` becomes a TensorScatter of the new rows behind those in use, and
    readers of the Concat read a Slice of the rows in use. Inputs and outputs keep their names,
    order and types, with the capacity as size of the axis that grew. If no input says how many rows
    are in use, one is added. That number replaces the lengths of pasts that the model reads.

    What cannot be proven stays. Without a capacity all these caches stay.

    Returns:
        Whether anything was replaced; the new nodes are of the opset of the result.
    """
    found = _growing(model)
    if settings.capacity is not None and any(cache.calls for cache in found):

        def prove(copy: ir.Model) -> tuple[list[Location], list[Unraised]]:
            tried = RaiseOutcome.of(copy)
            raise_growing(copy, settings, tried)
            return [one.location for one in tried.raised], tried.refused

        open_functions(model, lambda n: n.op_type in _GROWS, prove, "an update", outcome.notes)
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
            outcome.refused += [unraised(one.place, missing) for one in proven]
            return False
        growths = _attended(growths, sizes, opset, position, outcome)
        if not growths and not windows:
            return False
        outcome.blocked = objections(model, "raise")
        if settings.static and isinstance(settings.capacity, int):
            outcome.grown = _grown(model, growths, sizes, settings, settings.capacity)
        if not outcome.blocked:
            _edit(model, settings, growths, windows, sizes, position, outcome)
    finally:
        annotations.remove()
        remove_tags(model)
    return True


def _grown(
    model: ir.Model,
    growths: Sequence[Growth],
    sizes: Sizes,
    settings: RaiseSettings,
    capacity: int,
) -> Grown | None:
    """Return the values that are as long as the rows in use, masks that are granted to be included.

    Adds the assumptions that were needed to `sizes`.
    """
    step = sizes.one_step(growths)
    if step is None:
        return None
    found = grown_values(model, sizes, step, settings.dims, capacity)
    assumptions = settings.assumptions
    whole = covering(model, assumptions)
    masks = [v for v in model.graph.inputs if assumptions.grants("covers-past", v)]
    if not whole or all(GROWN in found.shapes[mask] for mask in masks):
        return found
    with common_names(model, [pair for pairs in whole.values() for pair in pairs]):
        again = Sizes.of(model, growths, (), assumptions, model.opset_imports[""])
        found = grown_values(model, again, step, settings.dims, capacity)
    sizes.assumed += whole
    return found


def _growing(model: ir.Model) -> list[Cache]:
    """Return the caches that grow, or roll when they have grown, each once."""
    if not any(node.op_type in _GROWS for _, _, node in nodes(model)):
        return []
    found: dict[str | None, Cache] = {}
    for cache in find_caches(model, prove=False):
        if not cache.is_growing and isinstance(cache.capacity, int):
            continue  # it has as many rows before a step as after it, and needs no capacity
        if cache.is_growing or is_rolling(cache):
            found.setdefault(cache.past or cache.present, cache)
    return list(found.values())


def _proven(
    model: ir.Model,
    found: Iterable[Cache],
    places: dict[ir.Node, Location],
    settings: RaiseSettings,
    outcome: RaiseOutcome,
) -> Iterable[Growth | Rolling]:
    """Yield the caches that only grow, and those that keep the last rows; refuse others."""
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
        except (Unproven, MalformedNode) as missing:
            outcome.refused.append(unraised(place, missing))


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
    opset = settings.target(model)
    source_opset = model.opset_imports[""]
    edit = Edit(model, scopes_of(model), source_opset, opset, capacity, sizes, position)
    assumed = (*sizes.assumed, *([position.assumed] if position.assumed else ()))
    circulating = Circulating(edit)
    carrier = growths[0].past if growths else windows[0].past
    edit.begin(growths, carrier, lambda em: circulating.begin(em, windows))
    for growth in growths:
        proof = [*_sentences(growth, sizes, position)]
        place, axis, past, present = growth.place, growth.axis, growth.past, growth.present
        for end in growth.ends:
            if end.node is not None:
                values = past, end.new, edit.starts[growth], present
                done = raised(place, "growing", axis, "linear", values, proof, assumed)
                outcome.raised.append(done)
        names = past.name or "", present.name or ""
        inside = any(end.node is not None and is_op(end.node, "Attention") for end in growth.ends)
        source: CacheSource = "attention" if inside else "concat"
        outcome.caches.append(RaisedCache(*names, capacity, "linear", source))
        edit.run(growth)
    edit.finish()
    outcome.in_use = edit.total
    if (grown := outcome.grown) is not None:
        for old, rows, cache in edit.cut:
            if old in grown.shapes:
                grown.shapes[rows], grown.caches[rows] = grown.shapes[old], cache
            if old in grown.types:
                grown.types[rows] = grown.types[old]
    name_lengths(model, edit.scopes, sizes, position)
    forget_lengths(edit.scopes, windows)
    for window in windows:
        proof = [*_window(window, position)]
        read, starts = circulating.run(window)
        outcome.windows[window.node.outputs[0]] = read
        values = window.past, window.new, starts, read.present
        granted = *assumed, window.assumed
        done = raised(window.place, "rolling", window.axis, "circular", values, proof, granted)
        outcome.raised.append(done)
        names = done.past, done.present
        outcome.caches.append(RaisedCache(*names, window.capacity, "circular", "rolling"))
        outcome.rotated.append(RotatedCache(done.past, "grows", window.rows))
    outcome.removed += remove_dead(edit.old)
    if (added := position.added) is not None:
        outcome.inputs_added.append(InputAdded(added.name or "", "int64", (1,), _MEANING))


def _attended(
    growths: Sequence[Growth], sizes: Sizes, opset: int, position: Position, outcome: RaiseOutcome
) -> list[Growth]:
    """Return the caches, without those of an Attention that has to keep its past."""
    grown: dict[ir.Node, list[Growth]] = {}
    for growth in growths:
        for end in growth.ends:
            if end.node is not None and end.node.op_type == "Attention":
                grown.setdefault(end.node, []).append(growth)
    refused: dict[Growth, Unproven] = {}
    for node, of_node in grown.items():
        try:
            check_attention(node, of_node, sizes, opset, position.whole)
        except Unproven as missing:  # noqa: PERF203
            refused.update(dict.fromkeys(of_node, missing))
    outcome.refused += [unraised(growth.place, missing) for growth, missing in refused.items()]
    return [growth for growth in growths if growth not in refused]


def _window(window: Rolling, position: Position) -> Iterable[str]:
    past, rows = window.past.name, window.rows
    yield f"`{window.present.name}` is the last {rows} rows of `{past}` and new ones"
    yield f"caches start empty, so that `{past}` has {rows} rows, or as many as there were tokens"
    yield f"the row of position p is row p mod {window.capacity} of the circular cache"
    yield position.proof


def _sentences(growth: Growth, sizes: Sizes, position: Position) -> Iterable[str]:
    past, present = growth.past.name, growth.present.name
    yield f"`{present}` is `{past}` with new rows behind it along axis {growth.axis}"
    if len(growth.ends) > 1:
        yield "a branch that does without the past hands out the first rows of a sequence"
    yield f"nothing of `{past}` is read but its sizes"
    if len(sizes.lengths) > 1:
        yield "all caches are of one length before a step"
    yield position.proof
