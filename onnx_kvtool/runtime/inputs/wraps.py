"""Starts that a model takes modulo the size of a cache before it scatters there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import given_integer
from onnx_kvtool.runtime.inputs.flow import is_default, small_integer

__all__ = ["is_narrowed", "wrapping_capacities"]

_MOST = 2000
"""Values that are looked at."""

_LINEAR = frozenset({"Add", "Mul", "Sub"})
"""Arithmetic by which starts become the indices of a scatter."""


def wrapping_capacities(start: ir.Value) -> Iterator[int]:
    """Yield each number modulo which indices made from `start` are taken on their way to a scatter.

    This is how a circular TensorScatter looks once it has been lowered, and how circular caches
    are written without it. Only numbers that stand in the file are found, and only in the graph of
    `start` itself.
    """
    return (modulus for modulus, _ in _wraps(start))


def is_narrowed(start: ir.Value) -> bool:
    """Return whether indices made from `start` are cast to int32 before such a remainder."""
    return start.dtype == ir.DataType.INT64 and any(narrow for _, narrow in _wraps(start))


def _wraps(start: ir.Value) -> Iterator[tuple[int, bool]]:
    """Yield each modulus, and whether the indices were cast to int32 before."""
    # Values with the modulus that was met on the way, None before one was, and with the cast.
    seen: set[tuple[int, int | None, bool]] = {(id(start), None, False)}
    queue: deque[tuple[ir.Value, int | None, bool]] = deque([(start, None, False)])
    while queue and len(seen) < _MOST:
        value, modulus, narrow = queue.popleft()
        for node, index in value.uses():
            if not is_default(node) or not node.outputs:
                continue
            kinds = traits(node)
            if Trait.UPDATES in kinds and modulus is not None and _is_position(node, index):
                yield modulus, narrow
            following: tuple[ir.Value, int | None, bool] | None = None
            if node.op_type == "Mod" and index == 0 and len(node.inputs) == 2:
                size = _number(node.inputs[1])
                is_known = size is not None and size > 0
                following = (node.outputs[0], size, narrow) if is_known else None
            elif _carries(node, index):
                is_cast = modulus is None and node.op_type == "Cast"
                is_int32 = is_cast and given_integer(node, "to") == ir.DataType.INT32
                following = node.outputs[0], modulus, narrow or is_int32
            if following is not None and (id(following[0]), *following[1:]) not in seen:
                seen.add((id(following[0]), *following[1:]))
                queue.append(following)


def _is_position(node: ir.Node, index: int) -> bool:
    facts = op_facts(node.op_type, NEWEST)
    formal = None if facts is None else facts.input(index)
    return formal is not None and formal.name == traits(node).positions


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
    producer = None if value is None else value.producer()
    if number is not None or producer is None or depth == 0 or not is_default(producer):
        return number
    if traits(producer).any(Trait.VIEW, Trait.CASTS):
        return _number(producer.inputs[0], depth - 1) if producer.inputs else None
    if producer.op_type == "Max":
        known = [_number(operand, depth - 1) for operand in producer.inputs]
        return max((size for size in known if size is not None), default=None)
    return None
