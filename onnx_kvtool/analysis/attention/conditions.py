"""Which keys a mask shows, as a function of coordinates: all, those up to the query, or others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import (
    BATCH,
    HEAD,
    KEY,
    QUERY,
    Frame,
    Seen,
    number_of,
)
from onnx_kvtool.analysis.attention.scores import ROWS, Mask, Operand
from onnx_kvtool.core.walk import maker, upwards
from onnx_kvtool.ops.operators import TensorScatter
from onnx_kvtool.ops.view import MalformedNode, given_input
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Atom, Element, Expr, IsNegative
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


def element_of(mask: Mask, frame: Frame, *, least: float = SWALLOWS) -> Expr | None:
    """Return an expression that is 1 for a key that the mask shows, and 0 for a hidden one.

    None if the mask does more than to hide keys, or if its elements are unknown.

    Args:
        mask: The mask.
        frame: The frame of the scores; its coordinates are those of the expression.
        least: The mask has to lower the scores of hidden keys by this number; 0 for any other
            score.
    """
    condition = _condition(mask, frame, least)
    if condition is None:
        return None
    seen, shown = condition
    element = frame.maps.of(seen.value).element
    if element is None:
        return None
    found = substitute(element, dict(enumerate(seen.index)), frame.facts())
    return found if shown else negation(found)


def _condition(mask: Mask, frame: Frame, least: float) -> tuple[Seen, bool] | None:
    """Return the bool value of a mask that only hides keys, and whether true shows them."""
    if mask.fill is not None:
        return (mask.seen, mask.shown) if mask.fill <= -SWALLOWS else None
    made = choice_of(mask.seen, frame)
    if made is None or mask.factor != 1:
        return None
    node = made.value.producer()
    assert node is not None
    condition, yes, no = node.inputs
    a, b = number_of(yes, frame), number_of(no, frame)
    if condition is None or a is None or b is None or max(a, b) != 0:
        return None
    if not min(a, b) < 0 or min(a, b) > -least:
        return None
    seen = frame.aligned(made, condition)
    return None if seen is None else (seen, a == 0)


def choice_of(seen: Seen, frame: Frame) -> Seen | None:
    """Return the result of the Where whose elements a value has; None if there is none."""
    above = frame.upwards(seen, frame.facts(), _DEEPEST)
    return next((one for one in above if maker(one.value, "Where")), None)


def sees_some(element: Expr, frame: Frame) -> bool:
    """Return whether each query sees the first key, or that of its own number."""
    facts = frame.facts()
    keys = [ZERO]
    if frame.sizes[QUERY] == frame.sizes[KEY]:
        keys.append(frame.at(QUERY))
    return any(substitute(element, {KEY: key}, facts).number == 1 for key in keys)


def shows_all(element: Expr, frame: Frame) -> bool:
    """Return whether every query sees every key."""
    return frame.simplified(element).number == 1


def asked_of(element: Expr) -> set[str]:
    """Return the names of the inputs, or other first values, whose elements a mask depends on."""
    found: set[str] = set()
    for atom in element.atoms():
        if not isinstance(atom, Element):
            continue
        *_, (value, _) = upwards(atom.value, _source)
        if value.name:
            found.add(value.name)
    return found


def _source(node: ir.Node) -> ir.Value | None:
    """Return the input whose elements a node moves, or its only input that is not constant."""
    if node.op_type in _MOVES_FIRST:
        return given_input(node, 0)
    sources = [v for v in node.inputs if v is not None and v.const_value is None]
    return sources[0] if len(sources) == 1 else None


def without_padding(
    element: Expr, frame: Frame, unpadded: Collection[ir.Value] | None = None
) -> tuple[Expr, tuple[ir.Value, ...]]:
    """Return what `element_of` returns if inputs of the model are 1 throughout, and these inputs.

    Args:
        element: What `element_of` returns.
        frame: The frame.
        unpadded: Inputs with that assumption granted; None for all.
    """
    atoms: dict[Atom, Expr] = {
        atom: ONE
        for atom in element.atoms()
        if isinstance(atom, Element)
        and atom.value.is_graph_input()
        and (unpadded is None or atom.value in unpadded)
    }
    if not atoms:
        return element, ()
    found = substitute(element, {}, frame.facts(), atoms)
    values = {atom.value for atom in atoms if isinstance(atom, Element)}
    return found, tuple(sorted(values, key=lambda value: value.name or ""))


def causality(
    element: Expr, frame: Frame, stored: tuple[Operand, Operand]
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
    ahead = frame.knowledge.equalities.resolved(ahead)
    if ahead.number == 0 and queries == keys:
        return "plain", ahead
    if ahead == keys - queries and at_least(keys, queries, frame.facts()):
        return "last", ahead
    written = all(_is_written(operand, ahead, frame) for operand in stored)
    return ("written", ahead) if written else None


def _is_written(operand: Operand, start: Expr, frame: Frame) -> bool:
    """Return whether a step writes a row for each query into a cache, from `start` on.

    `start` is in range, or TensorScatter fails. The rows of the cache have to be the keys of the
    queries, and its batch theirs: axes of the same sizes are not enough.
    """
    cache = operand.value
    node = maker(cache, "TensorScatter")
    if node is None:
        return False
    try:
        scatter = TensorScatter(node, frame.opset)
        axis = scatter.sequence_axis
    except MalformedNode:
        return False
    update = frame.shape(scatter.update)
    if axis is None or update is None or scatter.mode != "linear":
        return False
    if operand.axis_of(BATCH) != 0 or operand.axis_of(ROWS) != axis:
        return False
    whole = frame.shape(cache)
    if update[axis] != frame.sizes[QUERY] or whole is None or whole[axis] != frame.sizes[KEY]:
        return False
    if scatter.write_indices is None:
        return start.number == 0
    held = frame.maps.of(scatter.write_indices).element
    if held is None:
        return False
    held = substitute(held, {0: frame.at(BATCH)}, frame.facts())
    return frame.knowledge.equalities.resolved(held) == start
