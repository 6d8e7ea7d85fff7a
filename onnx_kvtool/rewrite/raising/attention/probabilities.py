"""From a Softmax down to the product of probabilities and values."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.rewrite.raising.assumptions import Unproven
from onnx_kvtool.rewrite.raising.attention.frame import BATCH, HEAD, KEY, QUERY, Frame
from onnx_kvtool.rewrite.raising.attention.numbers import number_of
from onnx_kvtool.rewrite.raising.attention.products import SUMMED, is_product, product
from onnx_kvtool.rewrite.raising.attention.sight import Seen, Sight
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer

__all__ = ["Weighted", "read_weighted", "weighted_by"]

_DEEPEST = 16
"""Most steps from the Softmax to the product, and from there to a result of rank 4."""

_MOVES = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)


@dataclass(frozen=True, slots=True)
class Weighted:
    """The product of probabilities and values.

    Attributes:
        values: The values, as the point (b, h, i) and the index of the sum see them.
        rows: How many rows they have.
        size: Size of a value head.
        result: What holds the weighted values.
        result_is_whole: Whether `result` is (B, H, L, E); else it is the product.
        shape: Shape of the product.
        guarded: Whether probabilities that are no numbers become zeros.
    """

    values: Seen
    rows: Expr
    size: Expr
    result: ir.Value
    result_is_whole: bool
    shape: tuple[Expr, ...]
    guarded: bool


def weighted_by(probabilities: ir.Value) -> ir.Node | None:
    """Return the product that a Softmax leads to through movements; None where there is none."""
    value = probabilities
    for _ in range(_DEEPEST):
        readers = list(dict.fromkeys(value.consumers()))
        found = [node for node in readers if is_product(node)]
        if found:
            return found[0]
        onward = [node for node in readers if node.op_type in (*_MOVES, "Where")]
        if not onward or onward[0].domain != "":
            return None
        value = onward[0].outputs[0]
    return None


def read_weighted(softmax: ir.Node, end: ir.Node, frame: Frame, sight: Sight) -> Weighted:
    """Return what the probabilities of a frame are multiplied with.

    Args:
        softmax: The Softmax.
        end: The product that it leads to.
        frame: The frame of its input.
        sight: What is known of the model.

    Raises:
        Unproven: If the probabilities are read elsewhere, or it is no such product.
    """
    result = end.outputs[0]
    shape = sight.shape(result)
    last = shape[-1] if shape else integer(1)
    at = integer(0) if last.number == 1 else coordinate(SUMMED)
    index = None if shape is None else frame.index(shape, at)
    if index is None:
        text = f"`{result.name}` is not known to be (B, H, L, E)"
        raise Unproven("other-layout", text)
    found = product(Seen(result, index), sight, frame.at(KEY))
    if found is None:
        text = f"the sizes of the operands of the product `{result.name}` may differ"
        raise Unproven("sizes-unrelated", text)
    facts = frame.facts(last)
    ways = [_to_softmax(operand, softmax, frame, sight, facts) for operand in found.operands]
    if (ways[0] is None) == (ways[1] is None):
        text = f"`{result.name}` is no product of probabilities and values"
        raise Unproven("other-layout", text)
    place = 1 if ways[0] is not None else 0
    values, rows = found.operands[place], found.sizes[place]
    whole, below = _result(Seen(result, index), last, frame, sight)
    return Weighted(values, rows, last, below, whole, shape or (), bool(ways[1 - place]))


def _to_softmax(
    seen: Seen, softmax: ir.Node, frame: Frame, sight: Sight, facts: Facts
) -> bool | None:
    """Return whether a guard stands between a Softmax and an operand; None if it is another value.

    Raises:
        Unproven: If it comes from the Softmax in another order, or is read elsewhere on the way.
    """
    guarded, readers, final = False, 1, seen.value.dtype
    passed: list[tuple[ir.Value, int]] = []
    for _ in range(_DEEPEST):
        node = seen.value.producer()
        passed.append((seen.value, readers))
        if node is softmax:
            break
        if node is None or node.domain != "":
            return None
        if node.op_type == "Where":
            inner = _guarded(node, sight)
            if inner is None:
                return None
            guarded, above, many = True, Seen(inner, seen.index), 2
        elif node.op_type == "Cast" and node.inputs[0] is not None:
            types = node.inputs[0].dtype, seen.value.dtype
            if not {*types} <= {softmax.outputs[0].dtype, final}:
                return None
            above, many = Seen(node.inputs[0], seen.index), 1
        else:
            moved = sight.above(seen, facts)
            if moved is None:
                return None
            above, many = moved, 1
        seen, readers = above, many
    else:
        return None
    for value, count in passed:
        _check_unread(value, count)
    shape = sight.shape(seen.value)
    if shape is None or seen.index != frame.index(shape, frame.at(KEY)):
        raise Unproven("other-layout", f"`{seen.value.name}` is read in another order")
    return guarded


def _check_unread(value: ir.Value, readers: int) -> None:
    if len(value.uses()) != readers or value.is_graph_output():
        text = f"the probabilities `{value.name}` are read elsewhere or an output"
        raise Unproven("probabilities-read", text)


def _guarded(node: ir.Node, sight: Sight) -> ir.Value | None:
    """Return the value of which a Where replaces what is no number by 0."""
    condition, yes, no = node.inputs
    test = None if condition is None else condition.producer()
    if test is None or test.op_type != "IsNaN" or test.domain != "" or test.inputs[0] is not no:
        return None
    alone = condition is not None and len(condition.uses()) == 1
    return no if number_of(yes, sight) == 0 and alone else None


def _result(seen: Seen, last: Expr, frame: Frame, sight: Sight) -> tuple[bool, ir.Value]:
    """Return what is (B, H, L, E) and is made of the product alone; else the product."""
    below, facts, graph = seen.value, frame.facts(last), _graph(seen.value)
    at = integer(0) if last.number == 1 else coordinate(SUMMED)
    whole = (frame.at(BATCH), frame.at(HEAD), frame.at(QUERY), at)
    for _ in range(_DEEPEST):
        if sight.shape(below) == (*frame.sizes[:3], last):
            found = _up_to(Seen(below, whole), seen.value, facts, sight)
            if found is not None and found.index == seen.index:
                return True, below
        uses = tuple(below.uses())
        if len(uses) != 1 or below.is_graph_output():
            break
        node = uses[0].node
        moves = node.op_type in _MOVES - {"Cast"} and node.domain == "" and uses[0].idx == 0
        if not moves or node.graph is not graph:
            break
        below = node.outputs[0]
    return False, seen.value


def _graph(value: ir.Value) -> ir.Graph | ir.Function | None:
    node = value.producer()
    return None if node is None else node.graph


def _up_to(seen: Seen, value: ir.Value, facts: Facts, sight: Sight) -> Seen | None:
    for _ in range(_DEEPEST):
        if seen.value is value:
            return seen
        above = sight.above(seen, facts)
        if above is None:
            return None
        seen = above
    return None
