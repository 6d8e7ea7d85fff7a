"""From a Softmax down to the product of probabilities and values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import (
    BATCH,
    HEAD,
    KEY,
    QUERY,
    SUMMED,
    Frame,
    Seen,
    Sight,
    is_product,
    number_of,
    product,
)
from onnx_kvtool.analysis.attention.scores import MOVES
from onnx_kvtool.analysis.caches.updates import operand_of
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import is_op, maker, producer
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Expr, Exprs, coordinate
from onnx_kvtool.symbolic.simplification import Facts

_DEEPEST = 16
"""Most steps from the Softmax to the product, and from there to a result of rank 4."""


class Weighted(NamedTuple):
    """The product of probabilities and values.

    Attributes:
        values: The values, as the point (b, h, i) and the index of the sum see them.
        result: What holds the weighted values.
        result_is_whole: Whether `result` is (B, H, L, E); else it is the product.
        guards: What makes rows without any key zero: None for a test for what is no number, a mask
            for a test whether all of its row is -inf.
    """

    values: Seen
    rows: Expr
    size: Expr
    result: ir.Value
    result_is_whole: bool
    shape: Exprs
    guards: tuple[ir.Value | None, ...]


def weighted_by(probabilities: ir.Value) -> ir.Node | None:
    """Return the product that a Softmax leads to through movements; None where there is none."""
    value = probabilities
    for _ in range(_DEEPEST):
        readers = list(dict.fromkeys(value.consumers()))
        found = [node for node in readers if is_product(node)]
        if found:
            return found[0]
        onward = [node for node in readers if node.op_type in (*MOVES, "Cast", "Where")]
        if not onward or onward[0].domain != "":
            return None
        value = onward[0].outputs[0]
    return None


def read_weighted(softmax: ir.Node, end: ir.Node, frame: Frame) -> Weighted:
    """Return what the probabilities of a frame are multiplied with.

    Raises:
        Unproven: If the probabilities are read elsewhere, or it is no such product.
    """
    result = end.outputs[0]
    shape = frame.shape(result)
    last = shape[-1] if shape else ONE
    at = ZERO if last.number == 1 else coordinate(SUMMED)
    index = None if shape is None else frame.index(shape, at)
    if index is None:
        text = f"`{result.name}` is not known to be (B, H, L, E)"
        raise Unproven("other-layout", text)
    found = product(Seen(result, index), frame, frame.at(KEY))
    if found is None:
        text = f"the sizes of the operands of the product `{result.name}` may differ"
        raise Unproven("sizes-unrelated", text)
    facts = frame.facts(last)
    ways = [_to_softmax(operand, softmax, frame, facts) for operand in found.operands]
    if (ways[0] is None) == (ways[1] is None):
        text = f"`{result.name}` is no product of probabilities and values"
        raise Unproven("other-layout", text)
    place = 1 if ways[0] is not None else 0
    values, rows = found.operands[place], found.sizes[place]
    whole, below = _result(Seen(result, index), last, frame)
    return Weighted(values, rows, last, below, whole, shape or (), ways[1 - place] or ())


def _to_softmax(
    seen: Seen, softmax: ir.Node, frame: Frame, facts: Facts
) -> tuple[ir.Value | None, ...] | None:
    """Return the guards between a Softmax and an operand; None if it is another value.

    Raise Unproven if it has the axes in another order, or if others read it on the way.
    """
    guards: list[ir.Value | None] = []
    readers, final = 1, seen.value.dtype
    passed: list[tuple[ir.Value, int]] = []
    for _ in range(_DEEPEST):
        node = maker(seen.value)
        passed.append((seen.value, readers))
        if node is softmax:
            break
        if node is None:
            return None
        above, readers = None, 1
        if node.op_type == "Where":
            guard = _guard(node, frame)
            if guard is not None:
                guards.append(guard[1])
                above, readers = Seen(guard[0], seen.index), 2 if guard[1] is None else 1
        elif node.op_type == "Cast" and node.inputs[0] is not None:
            types = node.inputs[0].dtype, seen.value.dtype
            first = softmax.outputs[0].dtype
            if any(kind not in (first, final) and not _holds(kind, first) for kind in types):
                return None
            above = Seen(node.inputs[0], seen.index)
        else:
            above = frame.above(seen, facts)
        if above is None:
            return None
        seen = above
    else:
        return None
    for value, count in passed:
        # CastLike asks its second operand for its type alone.
        read = [use for use in value.uses() if use.node.op_type != "CastLike" or use.idx == 0]
        if len(read) != count or value.is_graph_output():
            text = f"the probabilities `{value.name}` are read elsewhere or an output"
            raise Unproven("probabilities-read", text)
    shape = frame.shape(seen.value)
    if shape is None or seen.index != frame.index(shape, frame.at(KEY)):
        raise Unproven(
            "other-layout", f"`{seen.value.name}` is read with its axes in another order"
        )
    return tuple(guards)


def _holds(dtype: ir.DataType | None, other: ir.DataType | None) -> bool:
    """Return whether a type has every number of another one, so that a Cast changes none."""
    if dtype is None or other is None or not {dtype, other} <= FLOAT_TYPES:
        return False
    return np.can_cast(other.numpy(), dtype.numpy())


def _guard(node: ir.Node, sight: Sight) -> tuple[ir.Value, ir.Value | None] | None:
    """Return the probabilities whose rows without any key a Where sets to zero, and its test.

    None if the node does something else. The test is None for IsNaN; otherwise, it is the mask
    whose row has to be -inf throughout, as in the body of Attention.
    """
    condition, yes, no = node.inputs
    test = maker(condition, "IsNaN", "Equal")
    if test is None or no is None or number_of(yes, sight) != 0:
        return None
    if test.op_type == "IsNaN" and test.inputs[0] is no:
        return (no, None) if condition is not None and len(condition.uses()) == 1 else None
    if test.op_type != "Equal" or number_of(test.inputs[1], sight) != -math.inf:
        return None
    highest = maker(test.inputs[0], "ReduceMax")
    view = None if highest is None else sight.view(highest)
    mask = None if view is None else view.input("data")
    shape = None if mask is None else sight.shape(mask)
    if view is None or mask is None or shape is None or view.integer("keepdims") != 1:
        return None
    axes = operand_of(view, "axes", lambda value: sight.maps.of(value).vector())
    is_last = [axis.number for axis in axes or ()] in ([-1], [len(shape) - 1])
    return (no, mask) if is_last else None


def _result(seen: Seen, last: Expr, frame: Frame) -> tuple[bool, ir.Value]:
    """Return what is (B, H, L, E) and is made of the product alone; else the product."""
    below, facts, end = seen.value, frame.facts(last), producer(seen.value)
    graph = None if end is None else end.graph
    at = ZERO if last.number == 1 else coordinate(SUMMED)
    whole = (frame.at(BATCH), frame.at(HEAD), frame.at(QUERY), at)
    for _ in range(_DEEPEST):
        if frame.shape(below) == (*frame.sizes[:3], last):
            above = frame.upwards(Seen(below, whole), facts, _DEEPEST)
            if next((one.index for one in above if one.value is seen.value), None) == seen.index:
                return True, below
        uses = tuple(below.uses())
        if len(uses) != 1 or below.is_graph_output():
            break
        node = uses[0].node
        if not is_op(node, *MOVES) or uses[0].idx != 0 or node.graph is not graph:
            break
        below = node.outputs[0]
    return False, seen.value
