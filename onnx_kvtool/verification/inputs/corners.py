"""Inputs that make one of two ways to compute a value fail, and that no ordinary case holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.core.walk import nodes, producer
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import given_input, given_integer
from onnx_kvtool.verification.inputs.cases import Case, Range, Start
from onnx_kvtool.verification.inputs.roles import (
    is_default,
    size_along,
    small_integer,
    small_numbers,
)

_DEEPEST = 8
"""Nodes above a value that are looked at."""


@dataclass(frozen=True, slots=True)
class Corners:
    """How a model computes, where that decides which inputs it is right on.

    Attributes:
        is_told: Whether all of its operators say themselves what they compute, which a norm and an
            operator of another domain do not: they may square what another model squares openly.
        squares: Whether a value is multiplied with itself, which overflows early.
        cancels: Whether a square is taken from a square, which loses small differences.
        losing: Operators that make another number of one below zero.
        signed: Inputs that index tables, each with such an operator on their way.
        sums: Numbers that sums of elements are compared with.
    """

    is_told: bool = True
    squares: bool = False
    cancels: bool = False
    losing: frozenset[str] = frozenset()
    signed: frozenset[tuple[str, str]] = frozenset()
    sums: frozenset[float] = frozenset()


def corner_cases(a: Corners, b: Corners, *, has_floats: bool, is_narrowed: bool) -> Iterator[Case]:
    """Yield cases that may show a difference of two models that agree in all others.

    There is a case only if one of them computes in a way that the other does not. So the range of
    numbers does not tell models apart that were rewritten well.

    `has_floats` says whether some input holds floats that nothing limits. `is_narrowed` says
    whether one model alone casts starts to int32 before their remainder.
    """
    is_told = a.is_told and b.is_told
    if is_told and has_floats and a.squares != b.squares:
        yield _case("numbers whose squares are infinite", "huge")
    if is_told and has_floats and a.cancels != b.cancels:
        yield _case("numbers that are far from zero and near each other", "distant")
    if has_floats and a.losing != b.losing:
        for time in ("", ", once more"):  # a maximum may well be the first element
            yield _case(f"numbers below zero{time}", "negative")
    if has_floats and a.sums & b.sums:
        yield _case("whole numbers that add up to a threshold", "whole")
    if is_told and a.signed != b.signed:
        yield _case("ids below zero", "below")
    if is_narrowed:
        yield _case("starts above 2^32", "moderate", "far")


def _case(name: str, values: Range, start: Start = "anywhere") -> Case:
    return Case(name, batch=3, length=2, past=5, start=start, values=values)


def corners_of(model: ir.Model) -> Corners:
    """Return how `model` computes, in one pass."""
    is_told, squares, cancels = True, False, False
    losing: set[str] = set()
    signed: set[tuple[str, str]] = set()
    sums: set[float] = set()
    inputs = {*model.graph.inputs}
    for _, _, node in nodes(model):
        if not is_default(node):
            is_told &= node.op_identifier() in model.functions
            continue
        op_type = node.op_type
        is_told &= op_type not in _SQUARING and Trait.NORMALIZES not in traits(node)
        if op_type in _MAY_SQUARE:
            squares |= _squares(node)
        elif op_type == "Sub" and len(node.inputs) == 2:
            cancels |= all(_is_of_squares(value) for value in node.inputs)
        elif op_type in _TAKING:
            signed.update(_signed(given_input(node, 1), inputs))
        elif op_type in _COMPARING:
            for index in (0, 1):
                other = given_input(node, 1 - index)
                if other is not None and _is_sum(given_input(node, index)):
                    sums.update(small_numbers(other))
        elif op_type in _LOSING:
            losing.add(op_type)
    return Corners(is_told, squares, cancels, frozenset(losing), frozenset(signed), frozenset(sums))


def words(listed: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(listed.split())


_SQUARING = words("Gelu LpPool GlobalLpPool STFT DFT Det")
"""Operators that may square inside, beside those that normalize."""

_MAY_SQUARE = words("Mul MatMul Gemm Einsum Pow ReduceL2 ReduceSumSquare")

_TAKING = words("Gather GatherElements")

_COMPARING = words("Less LessOrEqual Greater GreaterOrEqual Equal")

_LOSING = words("Abs Relu Max Clip Sign")
"""Operators that make another number of one below zero, an index among them."""

_KEEPING = words("Add Sub Mul Div ReduceMean ReduceSum")
"""Operators that give squares where they read squares, for all that matters here."""


def _squares(node: ir.Node) -> bool:
    """Return whether a node multiplies a value with itself."""
    match node.op_type:
        case "ReduceL2" | "ReduceSumSquare":
            return True
        case "Pow":
            exponent = given_input(node, 1)
            known = [] if exponent is None else [*small_numbers(exponent)]
            return not known or max(known) > 1
        case _:
            return len(node.inputs) > 1 and node.inputs[0] is node.inputs[1]


def _is_of_squares(value: ir.Value | None, depth: int = _DEEPEST) -> bool:
    """Return whether a value is made of squares by sums, means, factors and rearranging."""
    node = producer(value)
    if node is None or depth == 0 or not is_default(node):
        return False
    if node.op_type in _MAY_SQUARE and _squares(node):
        return True
    if node.op_type not in _KEEPING and not traits(node).any(Trait.REARRANGES, Trait.CASTS):
        return False
    if node.op_type in ("Add", "Sub") or not node.inputs:
        return False
    return _is_of_squares(node.inputs[0], depth - 1)


def _signed(indices: ir.Value | None, inputs: Set[ir.Value]) -> Iterator[tuple[str, str]]:
    """Yield the `inputs` that indices come from, with each operator on the way that loses signs."""
    waiting: list[tuple[ir.Value | None, str, int]] = [(indices, "", _DEEPEST)]
    seen = {(indices, "")}
    while waiting:
        value, lost, depth = waiting.pop()
        if value is None or depth == 0:
            continue
        if lost and value in inputs:
            yield value.name or "", lost
        node = value.producer()
        if node is None or not is_default(node) or not node.inputs:
            continue
        kinds = traits(node)
        is_losing = node.op_type in _LOSING
        if not is_losing and not kinds.any(Trait.REARRANGES, Trait.ELEMENTWISE):
            continue
        for one in node.inputs if Trait.ELEMENTWISE in kinds else node.inputs[:1]:
            for following in {lost, node.op_type if is_losing else lost}:
                if (one, following) not in seen:
                    seen.add((one, following))
                    waiting.append((one, following, depth - 1))


def _is_sum(value: ir.Value | None, depth: int = _DEEPEST) -> bool:
    node = producer(value)
    if node is None or depth == 0 or not is_default(node) or not node.inputs:
        return False
    is_view = Trait.VIEW in traits(node)
    return node.op_type == "ReduceSum" or (is_view and _is_sum(node.inputs[0], depth - 1))


def stays_within(node: ir.Node, index: int) -> bool:
    """Return whether an input of `node` indexes rows of a table, none outside whatever is fed."""
    if not is_default(node) or node.op_type not in _TAKING or index != 1:
        return False
    rows = size_along(given_input(node, 0), given_integer(node, "axis", 0))
    least, most = _span(node.inputs[1])
    return rows is not None and -rows <= least and most < rows


_Span = tuple[float, float]

_ANYTHING: _Span = (-math.inf, math.inf)


def _span(value: ir.Value | None, depth: int = _DEEPEST) -> _Span:
    """Return the least and the largest integer that `value` may contain, for any input."""
    node = producer(value)
    if node is None or depth == 0 or not is_default(node) or not node.inputs:
        return _ANYTHING
    if Trait.VIEW in traits(node):
        return _span(node.inputs[0], depth - 1)
    if node.op_type not in ("Clip", "Min", "Max"):
        return _ANYTHING
    least, most = _span(node.inputs[0], depth - 1)
    # A bound that the caller may give as well is none.
    bounds = [None if b and b.is_graph_input() else small_integer(b) for b in node.inputs[1:]]
    if node.op_type == "Clip":
        low, high = [*bounds, None, None][:2]
    elif len(bounds) != 1 or bounds[0] is None:
        return _ANYTHING
    else:
        low, high = (bounds[0], None) if node.op_type == "Max" else (None, bounds[0])
    if low is not None:
        least, most = max(least, low), max(most, low)
    if high is not None:
        least, most = min(least, high), min(most, high)
    return least, most
