"""Where the values of an input go, and what they mean from the operators that they reach."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, default_version
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.core.walk import nodes, producer, subgraphs
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.ops.operators import Mode, TensorScatter
from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode, given_input, given_integer
from onnx_kvtool.verification.inputs.interface import CachePair, Caches

# Where a value goes: through copies, calls of model-local functions and sub-graphs.


_DEEPEST = 16
"""Nested calls that are followed; more is a cycle, or nothing that an exporter writes."""

_MOST_ELEMENTS = 16
"""Elements of a constant that is read; a longer one holds weights or a table."""

_MOST_PLACES = 10_000
"""Places that are visited for one value, so that a hostile graph cannot stall the search."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value that holds what another one holds, perhaps changed a little.

    Attributes:
        value: The value, in the main graph, a sub-graph or a function body.
        calls: The calls that lead into its function body, outermost first.
        is_same: Whether it is the very same tensor; False once it was reshaped, cast, shifted or
            taken apart.
        offset: What was added to each element on the way.
    """

    value: ir.Value
    calls: tuple[ir.Node, ...] = ()
    is_same: bool = True
    offset: int = 0


class Flow:
    """The ways that values take through `model`, which is read and not changed."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._functions = model.functions
        # The outputs of a node that the outputs of its bodies become.
        self._exits: dict[ir.Value, list[ir.Value]] = {}
        for _, _, node in nodes(model):
            for _, body in subgraphs(node):
                # The first output of a Loop body is its condition, which is not handed out.
                outputs = list(body.outputs)[1 if node.op_type == "Loop" else 0 :]
                for inner, outer in zip(outputs, node.outputs, strict=False):
                    self._exits.setdefault(inner, []).append(outer)

    def formal(self, place: Place, node: ir.Node, index: int) -> str | None:
        """Return the schema's name for the input `index` of `node`, which uses `place`.

        None for operators of neither ONNX nor onnxruntime, and inputs that the schema lacks.
        """
        if is_default(node):
            facts = op_facts(node.op_type, self.opset(place))
        else:
            facts = contrib_facts(node.domain, node.op_type)
        formal = None if facts is None else facts.input(index)
        return None if formal is None else formal.name

    def opset(self, place: Place) -> int:
        """Return the version of the default domain where `place` is; 0 when none is imported."""
        imports = self._model.opset_imports
        if place.calls:
            imports = self._functions[place.calls[-1].op_identifier()].opset_imports
        return default_version(imports)

    def closure(self, start: Place) -> Iterator[Place]:
        """Yield `start` and every place its elements reach unchanged but for shape and offset."""
        seen = {start}
        queue = deque([start])
        while queue and len(seen) < _MOST_PLACES:
            place = queue.popleft()
            yield place
            for following in self._steps(place):
                if following not in seen:
                    seen.add(following)
                    queue.append(following)

    def _steps(self, place: Place) -> Iterator[Place]:
        yield from (replace(place, value=outer) for outer in self._exits.get(place.value, ()))
        if place.calls:
            *calls, call = place.calls
            results = self._functions[call.op_identifier()].outputs
            for result, value in zip(results, call.outputs, strict=False):
                if result is place.value:
                    yield replace(place, value=value, calls=tuple(calls))
        for node, index in place.value.uses():
            if (function := self._functions.get(node.op_identifier())) is not None:
                if len(place.calls) < _DEEPEST and index < len(function.inputs):
                    yield replace(place, value=function.inputs[index], calls=(*place.calls, node))
            else:
                yield from self._through(place, node, index)

    def _through(self, place: Place, node: ir.Node, index: int) -> Iterator[Place]:
        if not is_default(node):
            return
        output = node.outputs[0] if node.outputs else None
        kinds = traits(node)
        if Trait.LOOPS in kinds:
            for _, body in subgraphs(node) if node.op_type != "Loop" or index > 1 else ():
                # A state is the caller's value in the first iteration only, and what Scan takes
                # apart never is, hence not the same tensor.
                for inner in body.inputs[index : index + 1]:
                    yield replace(place, value=inner, is_same=False)
        elif output is None:
            return
        elif Trait.SAME in kinds:
            yield replace(place, value=output)
        elif kinds.any(Trait.REARRANGES, Trait.CASTS, Trait.REPEATS) and index == 0:
            yield replace(place, value=output, is_same=False)
        elif Trait.PART in kinds and index == 0:
            for part in node.outputs:
                yield replace(place, value=part, is_same=False)
        elif node.op_type in ("Add", "Sub") and len(node.inputs) == 2:
            other = small_integer(node.inputs[1 - index])
            if other is not None and not (node.op_type == "Sub" and index == 1):
                offset = place.offset + (other if node.op_type == "Add" else -other)
                yield replace(place, value=output, is_same=False, offset=offset)


def is_default(node: ir.Node) -> bool:
    """Return whether `node` is of the default domain, which may be spelled in two ways."""
    return node.domain in DEFAULT_DOMAINS


def small_integer(value: ir.Value | None) -> int | None:
    """Return the integer that `value` is known to hold; None for anything else.

    Only constants of one element that lie in the file itself are read, never weights.
    """
    numbers = () if value is None else tuple(small_numbers(value))
    return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], int) else None


def small_numbers(value: ir.Value) -> Iterator[float]:
    """Yield the finite elements of a small constant that lies in the file itself."""
    tensor = stored_tensor(value)
    if tensor is None:
        node = value.producer()
        if node is not None and node.op_type == "Constant":
            for name in ("value_int", "value_float", "value_ints", "value_floats"):
                attribute = node.attributes.get(name)
                if attribute is not None and not attribute.is_ref():
                    listed = attribute.value
                    yield from listed if isinstance(listed, (list, tuple)) else (listed,)
        return
    if isinstance(tensor, ir.ExternalTensor) or tensor.dtype == ir.DataType.STRING:
        return
    if tensor.dtype == ir.DataType.BOOL or tensor.size > _MOST_ELEMENTS:
        return
    try:
        elements = array(tensor).reshape(-1)
    except KvtoolError:
        return  # data that does not fit the shape: whoever runs the model meets the same
    if elements.dtype.kind == "c":
        return
    is_integer = tensor.dtype.is_integer()
    for element in elements if is_integer else elements.astype(np.float64):
        if is_integer:
            yield int(element)
        elif math.isfinite(element):
            yield float(element)


# Starts that a model takes modulo the size of a cache before it scatters there.


_MOST_VALUES = 2000
"""Values that are looked at."""

_LINEAR = frozenset({"Add", "Mul", "Sub"})
"""Arithmetic that turns starts into the indices of a scatter."""


_Step = tuple[ir.Value, int | None, bool]
"""A value, the modulus that was met on the way to it, None before one was, and whether a cast to
int32 was."""


def wraps(start: ir.Value) -> Iterator[tuple[int, bool]]:
    """Yield each number modulo which indices made from `start` are taken on their way to a scatter.

    This is how a circular TensorScatter looks once it has been lowered, and how circular caches
    are written without it. Only numbers that stand in the file are found, and only in the graph of
    `start` itself. With each comes whether the indices were cast to int32 before.
    """
    begin: _Step = start, None, False
    seen, queue = {begin}, deque([begin])
    while queue and len(seen) < _MOST_VALUES:
        value, modulus, narrow = queue.popleft()
        for node, index in value.uses():
            if not is_default(node) or not node.outputs:
                continue
            kinds = traits(node)
            if Trait.UPDATES in kinds and modulus is not None:
                facts = op_facts(node.op_type, NEWEST)
                formal = None if facts is None else facts.input(index)
                if formal is not None and formal.name == kinds.positions:
                    yield modulus, narrow
            following: _Step | None = None
            if node.op_type == "Mod" and index == 0 and len(node.inputs) == 2:
                size = _number(node.inputs[1])
                is_known = size is not None and size > 0
                following = (node.outputs[0], size, narrow) if is_known else None
            elif _carries(node, index):
                is_cast = modulus is None and node.op_type == "Cast"
                is_int32 = is_cast and given_integer(node, "to") == ir.DataType.INT32
                following = node.outputs[0], modulus, narrow or is_int32
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)


def _carries(node: ir.Node, index: int) -> bool:
    """Return whether starts become indices through a node.

    A Where chooses between them and one that fails; what is written is no index any more.
    """
    if node.op_type == "Where":
        return index > 0
    if Trait.UPDATES in traits(node):
        return False
    return node.op_type in _LINEAR or traits(node).any(Trait.MOVES, Trait.CASTS)


def _number(value: ir.Value | None, depth: int = 4) -> int | None:
    """Return the number that `value` holds, through copies and the larger of two; None if unclear.

    A modulus may be written as the larger of the capacity and the rows that are written.
    """
    number = small_integer(value)
    node = producer(value)
    if number is not None or node is None or depth == 0 or not is_default(node):
        return number
    if traits(node).any(Trait.VIEW, Trait.CASTS):
        return _number(node.inputs[0], depth - 1) if node.inputs else None
    if node.op_type == "Max":
        known = [_number(operand, depth - 1) for operand in node.inputs]
        return max((size for size in known if size is not None), default=None)
    return None


# What the values of an input mean.


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
            rows = _rows(node, 0, given_integer(node, "axis", 0), place.offset)
            table = node.inputs[0]
            stored = table is not None and (table.is_initializer() or table.const_value is not None)
            if rows is not None and table is not None and stored:
                role: Role = "position_ids" if _turns(flow, place, node) else "token_ids"
                yield Uses(role, rows=rows, tables=(table.name or "",))
            else:
                yield Uses(None, rows=rows)
        case "GatherElements" | "ScatterElements", "indices":
            axis = given_integer(node, "axis", 0)
            yield Uses(None, rows=_rows(node, 0, axis, place.offset))
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
    pair = caches.scatters.get(node)
    if axis is None and pair is not None:
        axis = pair.axis
    if flow.formal(place, node, index) == "update":
        if place.is_same:
            yield Uses("update", update_axis=axis)
        return
    capacity = size_along(view.past_cache, axis)
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


def _rows(node: ir.Node, table: int, axis: int | None, offset: int) -> int | None:
    """Return how many values from 0 on may index the input `table` of `node` along `axis`."""
    size = size_along(given_input(node, table), axis)
    return None if size is None else max(size - offset, 0)


def size_along(value: ir.Value | None, axis: int | None) -> int | None:
    """Return the size of `value` along an axis; None if it is unknown, or no number."""
    shape = None if value is None else value.shape
    if shape is None or axis is None or not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return size if isinstance(size, int) else None
