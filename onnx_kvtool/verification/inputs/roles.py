"""What the values of an input mean, from the operators that they reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.ops.operators import Mode, TensorScatter
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode, given_input, given_integer
from onnx_kvtool.verification.inputs.flow import (
    Flow,
    Place,
    is_default,
    wraps,
)
from onnx_kvtool.verification.inputs.interface import CachePair, Caches

Role = Literal[
    "past_cache",
    "update",
    "position_ids",
    "write_indices",
    "nonpad_kv_seqlen",
    "seqlens_k",
    "total_sequence_length",
    "token_ids",
    "attention_mask",
    "past_length",
    "condition",
    "free",
]

_STRONGEST_FIRST: tuple[Role, ...] = (
    "update",
    "position_ids",
    "write_indices",
    "nonpad_kv_seqlen",
    "seqlens_k",
    "total_sequence_length",
    "token_ids",
    "attention_mask",
    "condition",
)
"""Positions stand before starts: a start may be a part of the positions, never the reverse."""


@dataclass(frozen=True, slots=True)
class Write:
    """A TensorScatter, or a scatter modulo the size of a cache, whose starts come from the input.

    Attributes:
        offset: What the model adds to the input's values before they become starts.
        mode: Mode of the TensorScatter; `circular` for a scatter modulo the size.
        cache: The cache that it writes; None when that is no input of the model.
        capacity: max_sequence_length, where it is a number at the node; None when it is not.
    """

    offset: int
    mode: Mode
    cache: CachePair | None
    capacity: int | None


@dataclass(frozen=True, slots=True)
class Uses:
    """Where the values of one input go.

    Attributes:
        role: What they mean; None when no telling operator is reached.
        writes: The TensorScatters whose starts they are.
        rows: They index tables; the smallest has so many rows, less what is added on the
            way; None when they index no table of known size.
        capacity: They count valid keys among so many; None when that is unknown.
        update_axis: Sequence axis of the TensorScatter whose `update` they are; None when unknown.
        tables: Names of the constant tables that they index.
        only_rows: Whether they index tables and nothing else is made of them.
        is_narrowed: Whether they are cast to int32 before they are taken modulo a size.
    """

    role: Role | None
    writes: tuple[Write, ...] = ()
    rows: int | None = None
    capacity: int | None = None
    update_axis: int | None = None
    tables: tuple[str, ...] = ()
    only_rows: bool = False
    is_narrowed: bool = False


def uses_of(flow: Flow, start: Place, caches: Caches) -> Uses:
    """Return where the values of the input at `start` go, given the caches of the model."""
    places = list(flow.closure(start))
    found = [
        use
        for place in places
        for node, index in place.value.uses()
        for use in _telling(flow, place, node, index, caches)
    ]
    wrapped = list(wraps(start.value))
    found += [
        Uses("write_indices", writes=(Write(0, "circular", None, size),)) for size, _ in wrapped
    ]
    roles = {use.role for use in found}
    return Uses(
        role=next((role for role in _STRONGEST_FIRST if role in roles), None),
        writes=tuple(dict.fromkeys(write for use in found for write in use.writes)),
        rows=min((use.rows for use in found if use.rows is not None), default=None),
        capacity=min((use.capacity for use in found if use.capacity is not None), default=None),
        update_axis=next((u.update_axis for u in found if u.update_axis is not None), None),
        tables=tuple(dict.fromkeys(name for use in found for name in use.tables)),
        only_rows=all(
            _takes_rows(node, index) for place in places for node, index in place.value.uses()
        ),
        is_narrowed=start.value.dtype == ir.DataType.INT64 and any(narrow for _, narrow in wrapped),
    )


def _takes_rows(node: ir.Node, index: int) -> bool:
    """Return whether a node takes rows of a table at an input, or hands the input on as it is."""
    if node.op_type == "RotaryEmbedding" or (is_default(node) and node.op_type == "Gather"):
        return index > 0
    moves = traits(node).any(Trait.REARRANGES, Trait.REPEATS, Trait.PART, Trait.READS_SHAPE)
    return is_default(node) and index == 0 and moves


def _telling(flow: Flow, place: Place, node: ir.Node, index: int, caches: Caches) -> Iterator[Uses]:
    """Yield what it tells that `node` takes `place` as its input `index`."""
    match node.op_type, flow.formal(place, node, index):
        case "TensorScatter", "update" | "write_indices":
            yield from _of_scatter(flow, place, node, index, caches)
        case "Attention", "nonpad_kv_seqlen":
            yield Uses("nonpad_kv_seqlen", capacity=_rows(node, 1, -2, 0))
        case "Attention", "attn_mask":
            if _is_discrete(place.value):
                yield Uses("attention_mask")
        case "RotaryEmbedding", "position_ids":
            # Without positions the table would have rank 3.
            table_at = 1 if is_default(node) else 2
            yield Uses("position_ids", rows=_rows(node, table_at, 0, place.offset))
        case "Gather", "indices":
            axis = given_integer(node, "axis", 0)
            rows = None if axis is None else _rows(node, 0, axis, place.offset)
            table = node.inputs[0]
            stored = table is not None and (table.is_initializer() or table.const_value is not None)
            if rows is not None and table is not None and stored:
                role: Role = "position_ids" if _turns(flow, place, node) else "token_ids"
                yield Uses(role, rows=rows, tables=(table.name or "",))
            else:
                yield Uses(None, rows=rows)
        case "GatherElements" | "ScatterElements", "indices":
            axis = given_integer(node, "axis", 0)
            yield Uses(None, rows=None if axis is None else _rows(node, 0, axis, place.offset))
        case ("Where", "condition") | ("CumSum", "x"):
            if _is_discrete(place.value):
                yield Uses("attention_mask")
        case "If", "cond":
            if place.value.dtype == ir.DataType.BOOL:
                yield Uses("condition")
        case _, "seqlens_k":  # the tokens of each sequence less one
            yield Uses("seqlens_k")
        case _, "total_sequence_length":
            yield Uses("total_sequence_length")


def _of_scatter(
    flow: Flow, place: Place, node: ir.Node, index: int, caches: Caches
) -> Iterator[Uses]:
    try:
        view = TensorScatter(node, flow.opset(place))
        axis = view.sequence_axis
    except MalformedNode:
        return
    pair = caches.scatters.get(id(node))
    if axis is None and pair is not None:
        axis = pair.axis
    if flow.formal(place, node, index) == "update":
        if place.is_same:
            yield Uses("update", update_axis=axis)
        return
    capacity = None if axis is None else _size(view.past_cache, axis)
    yield Uses("write_indices", writes=(Write(place.offset, view.mode, pair, capacity),))


def _turns(flow: Flow, place: Place, gather: ir.Node) -> bool:
    """Return whether the rows that `gather` takes are the angles of a RotaryEmbedding."""
    return bool(gather.outputs) and any(
        node.op_type == "RotaryEmbedding" and index in (1, 2)
        for rows in flow.closure(Place(gather.outputs[0], place.calls))
        for node, index in rows.value.uses()
    )


def _is_discrete(value: ir.Value) -> bool:
    """Return whether `value` holds integers or booleans, for all that is known."""
    return value.dtype is not None and (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL)


def _rows(node: ir.Node, table: int, axis: int, offset: int) -> int | None:
    """Return how many values from 0 on may index the input `table` of `node` along `axis`."""
    value = given_input(node, table)
    size = None if value is None else _size(value, axis)
    return None if size is None else max(size - offset, 0)


def _size(value: ir.Value, axis: int) -> int | None:
    if value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else None
