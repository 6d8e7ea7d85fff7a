"""Masks that are set at one position of an axis, and what is written through them."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.rewrite.raising.layout import cache_of
from onnx_kvtool.rewrite.raising.positions import check_start
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.symbolic.expressions import Element, Expr, IsZero, coordinate, integer, text
from onnx_kvtool.symbolic.simplification import Facts, at_least, below, substitute

__all__ = ["Mask", "prove_one_hot", "read_mask"]


@dataclass(frozen=True, slots=True)
class Mask:
    """A value that is 1 (or true) where the coordinate along an axis is a position, else 0.

    Attributes:
        value: The value, of the rank of the cache or less.
        axis: Its axis.
        position: The position, over its other coordinates.
        is_negated: Whether it is 0 there, and 1 elsewhere.
    """

    value: ir.Value
    axis: int
    position: Expr
    is_negated: bool


def read_mask(proof: Proof, value: ir.Value | None) -> Mask | None:
    """Return `value` as a mask; None when it is none."""
    if value is None:
        return None
    described = proof.maps.of(value)
    if described.element is None or described.shape is None:
        return None
    for element, is_negated in ((described.element, False), (1 - described.element, True)):
        atom = element.atom
        if not isinstance(atom, IsZero):
            continue
        for axis in atom.of.axes:
            parts = atom.of.split(axis)
            sign = None if parts is None else parts[0].number
            if parts is not None and sign in (1, -1):
                position = parts[1] if sign == -1 else -parts[1]
                return Mask(value, axis, position, is_negated)
    return None


def prove_one_hot(
    proof: Proof, mask: Mask, cache: ir.Value, update: ir.Value, output: ir.Value
) -> ProvenUpdate:
    """Prove that one row of a cache is replaced where a mask is set.

    The operands are broadcast; the result has the shape of the cache if every other one has the
    size 1 or that of the cache along each axis.

    Args:
        proof: The attempt.
        mask: Where the row goes.
        cache: The tensor that is kept elsewhere, of known rank.
        update: The row.
        output: The result.

    Raises:
        Unproven: If a fact is missing.
    """
    sizes, grid = proof.maps.shape(cache), proof.maps.shape(mask.value)
    given = proof.maps.shape(update)
    assert sizes is not None and grid is not None
    if given is None or len(given) > len(sizes) or len(grid) > len(sizes):
        raise Unproven("unknown-rank", f"the rank of `{update.name}` is not that of the cache")
    rank = len(sizes)
    ahead, lacking = rank - len(grid), rank - len(given)
    axis = mask.axis + ahead
    cache_of(proof, cache, axis)
    if axis >= lacking and given[axis - lacking].number != 1:
        raise Unproven(
            "several-rows",
            f"`{update.name}` has size `{text(given[axis - lacking])}` along axis {axis}, of which "
            "one row is taken",
        )
    proof.whole(axis, sizes[axis], [grid[mask.axis]])
    known: list[tuple[Expr, ...]] = []
    for k, size in enumerate(sizes):
        if k >= ahead and k != axis and grid[k - ahead].number != 1:
            proof.whole(k, size, [grid[k - ahead]])
        ways = [given[k - lacking]] if k >= lacking else [integer(1)]
        if k != axis:
            proof.whole(k, size, ways)
            ways.append(size)
        if k >= lacking:
            known.append(tuple(ways))
    _check_range(proof, mask, sizes[axis], grid)
    check_start(mask.position, grid)
    proof.say(
        f"`{mask.value.name}` is set where the coordinate along axis {axis} is "
        f"`{text(mask.position)}`, and the update has one row"
    )
    there = {k: coordinate(k + ahead) for k in mask.position.axes}
    start = substitute(mask.position, there, Facts(sizes))
    places = tuple(k - lacking if k >= lacking else None for k in range(rank))
    return ProvenUpdate(cache, update, tuple(known), output, axis, places, start, "linear")


def _check_range(proof: Proof, mask: Mask, size: Expr, grid: tuple[Expr, ...]) -> None:
    """Prove or assume that the position is one of the axis.

    Raises:
        Unproven: If it is neither.
    """
    facts, position = Facts(grid), mask.position
    if at_least(position, integer(0), facts) and below(position, size, facts):
        return
    values = [atom.value for atom in position.atoms() if isinstance(atom, Element)]
    if not values:
        raise Unproven("out-of-range", f"the position `{text(position)}` is outside the cache")
    for value in dict.fromkeys(values):
        proof.assume(
            "in-range",
            value,
            "position-in-range",
            f"a position `{text(position)}` outside the cache writes nothing here, and "
            "TensorScatter fails on it",
        )
