"""Which keys a mask shows, as a function of coordinates: all, those up to the query, or others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import (
    BATCH,
    HEAD,
    KEY,
    QUERY,
    Frame,
    Seen,
    Sight,
    number_of,
)
from onnx_kvtool.analysis.attention.scores import ROWS, Hidden, Mask, Operand
from onnx_kvtool.core.walk import upwards
from onnx_kvtool.ops.operators import TensorScatter
from onnx_kvtool.ops.view import MalformedNode, given_input
from onnx_kvtool.symbolic.expressions import Atom, Element, Expr, IsNegative, integer
from onnx_kvtool.symbolic.simplification import at_least, negation, substitute

_DEEPEST = 12
"""Most steps above a mask that are looked through for what makes it."""

SWALLOWS = 1e30
"""A size of numbers that no score changes when it is added (8 bits of exponent or more)."""

_MOVES_FIRST = frozenset({"Expand", "Gather", "GatherND", "Reshape", "Slice"})
"""Operators whose other inputs say where elements of the first one go."""

Causality = Literal["plain", "last", "written"]
"""How Attention is told that query i sees key j just where `j <= i + ahead`.

By `is_causal` alone, with as many queries as keys; the queries are the last of the keys, which
`nonpad_kv_seqlen` counts; or their keys are what a TensorScatter has just written, and it counts
the rows up to the last of them."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """Which keys are seen, as a bool value, and whether it is true for those."""

    seen: Seen
    shown: bool


def element_of(
    mask: Mask | Hidden, frame: Frame, sight: Sight, *, least: float = SWALLOWS
) -> Expr | None:
    """Return 1 where a key is seen and 0 where not, over the coordinates of the frame.

    None for a mask that does something else than to hide keys, or whose elements are unknown.

    Args:
        mask: The mask.
        frame: The frame of the scores.
        sight: What is known of the model.
        least: What it has to take away from the scores of hidden keys; without any, these only have
            another number.
    """
    condition = _condition(mask, frame, sight, least)
    return None if condition is None else _element(condition, frame, sight)


def _condition(mask: Mask | Hidden, frame: Frame, sight: Sight, least: float) -> _Condition | None:
    """Return the condition of a mask that hides keys and does nothing else."""
    if isinstance(mask, Hidden):
        return _Condition(mask.seen, mask.shown) if mask.fill <= -SWALLOWS else None
    made = choice_of(mask.seen, frame, sight)
    if made is None or mask.factor != 1:
        return None
    node = made.value.producer()
    assert node is not None
    condition, yes, no = node.inputs
    a, b = number_of(yes, sight), number_of(no, sight)
    if condition is None or a is None or b is None or max(a, b) != 0:
        return None
    if not min(a, b) < 0 or min(a, b) > -least:
        return None
    seen = sight.aligned(made, condition)
    return None if seen is None else _Condition(seen, a == 0)


def choice_of(seen: Seen, frame: Frame, sight: Sight) -> Seen | None:
    """Return the result of the Where whose elements a value has; None if there is none."""
    for _ in range(_DEEPEST):
        node = seen.value.producer()
        if node is None or node.domain != "":
            return None
        if node.op_type == "Where":
            return seen
        above = sight.above(seen, frame.facts(integer(1)))
        if above is None:
            return None
        seen = above
    return None


def _element(condition: _Condition, frame: Frame, sight: Sight) -> Expr | None:
    element = sight.maps.of(condition.seen.value).element
    if element is None:
        return None
    at = dict(enumerate(condition.seen.index))
    found = substitute(element, at, frame.facts(integer(1)))
    return found if condition.shown else negation(found)


def sees_some(element: Expr, frame: Frame) -> bool:
    """Return whether each query sees the first key, or that of its own number."""
    facts = frame.facts(integer(1))
    keys = [integer(0)]
    if frame.sizes[QUERY] == frame.sizes[KEY]:
        keys.append(frame.at(QUERY))
    return any(substitute(element, {KEY: key}, facts).number == 1 for key in keys)


def shows_all(element: Expr, frame: Frame) -> bool:
    """Return whether every query sees every key."""
    return frame.simplified(element).number == 1


def asked_of(element: Expr) -> set[str]:
    """Return the names of the inputs, or of what else has no source, whose elements a mask asks."""
    found: set[str] = set()
    for atom in element.atoms():
        if not isinstance(atom, Element):
            continue
        *_, (value, _) = upwards(atom.value, _source)
        if value.name:
            found.add(value.name)
    return found


def _source(node: ir.Node) -> ir.Value | None:
    """Return the input whose elements a node moves, or the only one that is no constant."""
    if node.op_type in _MOVES_FIRST:
        return given_input(node, 0)
    sources = [v for v in node.inputs if v is not None and v.const_value is None]
    return sources[0] if len(sources) == 1 else None


def without_padding(
    element: Expr, frame: Frame, unpadded: Collection[ir.Value] | None = None
) -> tuple[Expr, tuple[ir.Value, ...]]:
    """Return which keys are seen where inputs of the model say 1 of each, and these inputs.

    Args:
        element: What `element_of` returns.
        frame: The frame.
        unpadded: Inputs with that assumption granted; None for all.
    """
    atoms: dict[Atom, Expr] = {
        atom: integer(1)
        for atom in element.atoms()
        if isinstance(atom, Element)
        and atom.value.is_graph_input()
        and (unpadded is None or atom.value in unpadded)
    }
    if not atoms:
        return element, ()
    found = substitute(element, {}, frame.facts(integer(1)), atoms)
    values = {atom.value for atom in atoms if isinstance(atom, Element)}
    return found, tuple(sorted(values, key=lambda value: value.name or ""))


def causality(
    element: Expr, frame: Frame, stored: tuple[Operand, Operand], sight: Sight
) -> tuple[Causality, Expr] | None:
    """Return how Attention is told which keys a mask shows, and `ahead`.

    The texts of the releases of onnx differ in what `is_causal` means with other numbers of queries
    and keys; with `nonpad_kv_seqlen` they agree that the last query is at the last key that is
    counted. So the count has to be proven: to be that of all keys, or of the rows up to the last
    one that is written in this step, to each sequence on its own.

    Args:
        element: What `element_of` returns.
        frame: The frame.
        stored: Keys and values.
        sight: What is known of the model.

    Returns:
        None for any other mask.
    """
    shown = frame.simplified(element).atom
    if not isinstance(shown, IsNegative):
        return None
    ahead = frame.at(KEY) - frame.at(QUERY) - 1 - shown.of
    if any(ahead.depends_on(axis) for axis in (HEAD, QUERY, KEY)):
        return None
    queries, keys = frame.sizes[QUERY], frame.sizes[KEY]
    ahead = sight.knowledge.equalities.resolved(ahead)
    if ahead.number == 0 and queries == keys:
        return "plain", ahead
    if ahead == keys - queries and at_least(keys, queries, frame.facts(integer(1))):
        return "last", ahead
    written = all(_is_written(operand, ahead, frame, sight) for operand in stored)
    return ("written", ahead) if written else None


def _is_written(operand: Operand, start: Expr, frame: Frame, sight: Sight) -> bool:
    """Return whether a step writes a row for each query into a cache, from `start` on.

    That is not below 0 and leaves room for all of them, or TensorScatter fails. Its rows have to be
    the keys that the queries see, and its batch theirs: axes of the same sizes are not enough.
    """
    cache = operand.value
    node = cache.producer()
    if node is None or node.op_type != "TensorScatter" or node.domain != "":
        return False
    try:
        scatter = TensorScatter(node, sight.opset)
        axis = scatter.sequence_axis
    except MalformedNode:
        return False
    update = sight.shape(scatter.update)
    if axis is None or update is None or scatter.mode != "linear":
        return False
    if operand.axis_of(BATCH) != 0 or operand.axis_of(ROWS) != axis:
        return False
    whole = sight.shape(cache)
    if update[axis] != frame.sizes[QUERY] or whole is None or whole[axis] != frame.sizes[KEY]:
        return False
    if scatter.write_indices is None:
        return start.number == 0
    held = sight.maps.of(scatter.write_indices).element
    if held is None:
        return False
    held = substitute(held, {0: frame.at(BATCH)}, frame.facts(integer(1)))
    return sight.knowledge.equalities.resolved(held) == start
