"""The caches of a model: each input with the output that replaces it in the next step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.ops.tensor_scatter import Mode, TensorScatter
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.runtime.inputs.flow import Flow, Place

__all__ = ["CachePair", "Caches", "find_caches"]


@dataclass(frozen=True, slots=True)
class CachePair:
    """A cache that goes in as `past` and comes out as `present`.

    Attributes:
        past: Name of the graph input.
        present: Name of the graph output.
        kind: `fixed` keeps its size, `growing` gains the new rows, `named` is known by its name
            only.
        axis: The sequence axis counted from the front; None when it is not known.
        mode: Mode of the TensorScatter that writes it; None for other caches.
    """

    past: str
    present: str
    kind: Literal["fixed", "growing", "named"]
    axis: int | None = None
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of a model.

    Attributes:
        pairs: All of them, in the order of the model's inputs.
        scatters: Those that TensorScatter writes, by the identity of that node. Good only as
            long as the model is not edited.
    """

    pairs: tuple[CachePair, ...]
    scatters: dict[int, CachePair]


def find_caches(model: ir.Model, flow: Flow, inputs: Sequence[ir.Value]) -> Caches:
    """Find the caches of `model` among `inputs`.

    A cache is an input that TensorScatter, Attention or Concat takes as it is and whose updated
    form is an output as it is, in the main graph or through functions and sub-graphs; or an
    input and an output whose names exporters use for the two ends of a cache.
    """
    found: dict[str, CachePair] = {}
    scatters: dict[int, CachePair] = {}
    for value in inputs:
        presents = {pair.present for pair in found.values()}
        for node, pair in _by_operator(flow, value):
            if pair.present not in presents:
                found[pair.past] = pair
                if pair.kind == "fixed":
                    scatters[id(node)] = pair
                break
    outputs = {output.name: output for output in model.graph.outputs if output.name}
    for value in inputs:
        if value.name in found:
            continue
        free = outputs.keys() - {pair.present for pair in found.values()}
        present = _present_name(value.name or "", free)
        if present is not None and _are_alike(value, outputs[present]):
            axis = _changing_axis(value, outputs[present])
            found[value.name or ""] = CachePair(value.name or "", present, "named", axis)
    return Caches(tuple(found[v.name] for v in inputs if v.name in found), scatters)


def _by_operator(flow: Flow, value: ir.Value) -> Iterator[tuple[ir.Node, CachePair]]:
    for place in flow.closure(Place(value)):
        if not place.is_same:
            continue
        for node, index in place.value.uses():
            update = _update(flow, place, node, index)
            if update is None:
                continue
            updated, pair = update
            for present in flow.outputs(Place(updated, place.calls)):
                yield node, CachePair(value.name or "", present, pair.kind, pair.axis, pair.mode)


def _update(
    flow: Flow, place: Place, node: ir.Node, index: int
) -> tuple[ir.Value, CachePair] | None:
    """Return the updated cache and how it is updated, if `node` updates its input `index`."""
    formal = flow.formal(place, node, index)
    rank = None if place.value.shape is None else len(place.value.shape)
    if node.op_type == "TensorScatter" and formal == "past_cache":
        try:
            view = TensorScatter(node, flow.opset(place))
            return view.present_cache, CachePair("", "", "fixed", view.sequence_axis, view.mode)
        except MalformedNode:
            return None
    if node.op_type == "Attention" and formal in ("past_key", "past_value"):
        # (B, heads, rows, head size), also where the other operands have rank 3
        position = 1 if formal == "past_key" else 2
        if position < len(node.outputs):
            return node.outputs[position], CachePair("", "", "growing", 2)
    if node.op_type == "Concat" and index == 0 and len(node.inputs) == 2:
        axis = flow.axis(place, node)
        if axis is not None and rank and -rank <= axis < rank:
            return node.outputs[0], CachePair("", "", "growing", axis % rank)
    return None


_NAMED_ENDS: tuple[tuple[str, str], ...] = (
    (r"past_key_values\.(\d+)\.(key|value)", r"present.\1.\2"),
    (r"past(.*)", r"present\1"),
    (r"(.*)", r"updated_\1"),
    (r"(.*)", r"new_\1"),
    (r"(.*)_in", r"\1_out"),
    (r"(.*)", r"\1_out"),
)
"""Names that exporters give to the two ends of a cache."""


def _present_name(past: str, outputs: Set[str]) -> str | None:
    for pattern, replacement in _NAMED_ENDS:
        match = re.fullmatch(pattern, past, flags=re.DOTALL)
        if match is not None and (present := match.expand(replacement)) in outputs:
            return present
    return None


def _are_alike(past: ir.Value, present: ir.Value) -> bool:
    """Return whether nothing that is known forbids `present` to become `past`."""
    if past.dtype != present.dtype and None not in (past.dtype, present.dtype):
        return False
    return past.shape is None or present.shape is None or len(past.shape) == len(present.shape)


def _changing_axis(past: ir.Value, present: ir.Value) -> int | None:
    """Return the axis, not the batch, in which a growing cache changes; None if it is unclear."""
    if past.shape is None or present.shape is None:
        return None
    pairs = list(enumerate(zip(past.shape, present.shape, strict=True)))
    axes = [axis for axis, (a, b) in pairs if axis > 0 and a != b]
    return axes[0] if len(axes) == 1 else None
