"""The stage of `raise` for updates of caches that have a fixed capacity already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.core.model import clone
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.rewrite.engine.dead import remove_dead
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.raise_report import CacheSource, InputAdded, Raised, RaisedCache, Unraised
from onnx_kvtool.rewrite.raising.in_functions import (
    functions_with,
    inline_tagged,
    remove_tags,
    tag_nodes,
)
from onnx_kvtool.rewrite.raising.plan import Plan
from onnx_kvtool.rewrite.raising.proving import Planned, Proving, is_candidate
from onnx_kvtool.rewrite.raising.replace import Replaced, replace_update
from onnx_kvtool.rewrite.raising.rolling import Window, first_of
from onnx_kvtool.rewrite.raising.stage import (
    RaiseOutcome,
    RaiseSettings,
    scopes_of,
    token_count,
)
from onnx_kvtool.shapes.infer import annotate
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.expressions import Element, Expr, integer, text, variable

__all__ = ["raise_fixed"]


def raise_fixed(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Replace every proven update of a fixed cache by a TensorScatter, in place.

    What cannot be proven stays.

    Returns:
        Whether anything was replaced; the new nodes are of the opset of the result.
    """
    if not any(is_candidate(node) for _, _, node in nodes(model)):
        return False
    opset = model.opset_imports[""]
    elsewhere = _open_functions(model, settings, opset, outcome)
    annotations = annotate(model, fully=True)
    if annotations.failure:
        outcome.notes.append(annotations.failure)
    proving = Proving(model, settings.assumptions, opset, outcome.place)
    proving.run()
    outcome.refused += [*proving.refused, *elsewhere]
    remove_tags(model)
    if proving.plans:
        outcome.blocked = objections(model, "raise")
        if not outcome.blocked:
            _edit(proving, max(opset, settings.opset), outcome)
    proving.forget_sizes()
    annotations.remove()
    return bool(proving.plans)


def _open_functions(
    model: ir.Model, settings: RaiseSettings, opset: int, outcome: RaiseOutcome
) -> list[Unraised]:
    """Inline the functions that hold an update which can be proven at one of their calls, in place.

    Which they are is found out on a copy, so that all other functions stay.

    Returns:
        The candidates in functions that stay.
    """
    holding = functions_with(model, is_candidate)
    if not holding:
        return []
    copy = clone(model)
    tag_nodes(copy, is_candidate)
    try:
        inline_tagged(copy, holding.values())
    except Refusal as refusal:
        outcome.notes.append(f"updates in functions are left alone: {refusal.message}")
        return []
    annotate(copy, fully=True)
    proving = Proving(copy, settings.assumptions, opset, outcome.place)
    proving.run()
    proven = {
        place.graph.split("/")[0] for p in proving.plans if "::" in (place := p.location).graph
    }
    opened = [key for path, key in holding.items() if path in proven]
    tag_nodes(model, is_candidate)
    if opened:
        outcome.notes += inline_tagged(model, opened)
    stay = {
        refusal.location: refusal
        for refusal in proving.refused
        if (root := refusal.location.graph.split("/")[0]) in holding and root not in proven
    }
    return list(stay.values())


def _edit(proving: Proving, target: int, outcome: RaiseOutcome) -> None:
    """Carry out all plans, in the order of the graph."""
    scopes = scopes_of(proving.model)
    replaced: Replaced = {}
    old: list[ir.Node] = []
    windows = _Windows(proving, outcome)
    for planned in map(windows.placed, proving.plans):
        one = planned.plan
        graph = one.node.graph
        assert graph is not None
        em = Emitter(scopes[graph], target, one.node.name or "kvtool/raise")
        old += [one.node, *(p for v in one.presents if (p := v.producer()) is not None)]
        if one.window is not None:
            outcome.rotated.append(_rotated(one, one.window))
            if (counter := first_of(one.start)) is not None and counter.name:
                outcome.positions.append(counter.name)
        scatter = replace_update(one, em, replaced)
        raised = _raised(planned, scatter)
        outcome.raised.append(raised)
        past = dims_of(scatter.inputs[0])
        rows = None if past is None else past[one.axis]
        source: CacheSource = "fixed" if one.window is None else "rolling"
        if scatter.inputs[0] is not None and scatter.inputs[0].is_graph_input():
            # What is written to may be a part of a mask as well.
            outcome.caches.append(RaisedCache(raised.past, raised.present, rows, one.mode, source))
        outcome.equal_dims += one.implied
        outcome.positions += one.counting
        outcome.is_in_range |= one.is_in_range
    outcome.equal_dims += proving.assumptions.dims
    outcome.removed += remove_dead(old)


@dataclass(slots=True)
class _Windows:
    """Finds the position of a step for windows that need none in the source."""

    proving: Proving
    outcome: RaiseOutcome
    position: Expr | None = None
    why: str = ""

    def placed(self, planned: Planned) -> Planned:
        """Return a plan with its start, and with what that rests on in its proof."""
        one = planned.plan
        if one.window is None or one.window.position is not None:
            return planned
        if self.position is None:
            self.position, self.why = self._beside() or self._added()
        plan = replace(one, start=self.position, sentences=(*one.sentences, self.why))
        return replace(planned, plan=plan)

    def _beside(self) -> tuple[Expr, str] | None:
        """Return the start of a cache that keeps all rows: how many tokens there are before."""
        inputs = set(self.proving.model.graph.inputs)
        for planned in self.proving.plans:
            one = planned.plan
            if one.window is not None or one.mode != "linear" or one.start.axes:
                continue
            if first_of(one.start) in inputs:
                why = (
                    f"the tokens before a step are `{text(one.start)}`, where `{one.past.name}` is "
                )
                return one.start, why + "written"
        return None

    def _added(self) -> tuple[Expr, str]:
        """Return a new input of the model, or the one that caches which grow have been given."""
        graph = self.proving.model.graph
        names = {one.name for one in self.outcome.inputs_added}
        known = next((v for v in graph.inputs if v.name in names), None)
        if known is None:
            known = token_count(self.proving.model)
            graph.inputs.append(known)
            added = InputAdded(known.name or "", "int64", (1,), "tokens before this step")
            self.outcome.inputs_added.append(added)
        why = f"the tokens before a step are the new input `{known.name}`"
        return variable(Element(known, (integer(0),))), why


def _rotated(plan: Plan, window: Window) -> RotatedCache:
    arrangement: Literal["first", "last"] = "last" if window.position is None else "first"
    return RotatedCache(plan.past.name or "", arrangement, window.size)


def _raised(planned: Planned, scatter: ir.Node) -> Raised:
    one = planned.plan
    past, update, *rest = scatter.inputs
    assert past is not None and update is not None
    starts = rest[0] if rest else None
    assumed = tuple(f"assumed: {text}" for text in one.assumed)
    return Raised(
        location=planned.location,
        pattern=planned.raising.name,
        axis=one.axis,
        mode=one.mode,
        past=past.name or "",
        update=update.name or "",
        write_indices=None if starts is None else starts.name,
        present=scatter.outputs[0].name or "",
        proof=(*one.sentences, *assumed),
        assumed=one.assumed,
    )
