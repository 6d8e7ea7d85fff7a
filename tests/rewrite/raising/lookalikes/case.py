"""A sound update in an odd form, and what the forms are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.forms import graph

__all__ = ["FREE", "INSIDE", "SIZES", "Case", "free", "scattered"]

SIZES = Draws(sizes={"B": (1, 2, 3), "S": (2, 5), "L": (1, 2)}, count=60)
"""Starts around the cache, and sizes of `FREE`."""

INSIDE = Draws({"w": range(4), "v": range(4), "n": range(3)}, {"B": (1, 2), "S": (5,), "L": (1, 2)})
"""Starts within the cache."""

FREE = "float[B,3,S,7] cache, float[B,3,L,7] upd"

_POSITIONS = """
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    two = Constant <value = int64 {2}> ()
    ones = Constant <value = int64[3] {1, 2, 3}> ()
    outer = Constant <value = int64[3] {0, 1, 3}> ()
    shape = Shape (upd)
    length = Gather (shape, two)
    range = Range (zero, length, one)
    rows = Unsqueeze (range, outer)
"""


def scattered(cache: str, update: str, start: str, present: str) -> str:
    """Return nodes that write `update` to `cache` from `start` (B,) on."""
    return f"""
        {present}_s = Unsqueeze ({start}, ones)
        {present}_p = Add ({present}_s, rows)
        {present}_i = Expand ({present}_p, shape)
        {present} = ScatterElements <axis = 2> ({cache}, {present}_i, {update})
    """


def free(
    body: str,
    inputs: str = f"{FREE}, int64[B] w",
    outputs: str = "float[B,3,S,7] present",
    tail: str = "",
) -> str:
    return graph(inputs, _POSITIONS + body, outputs, tail=tail)


@dataclass(frozen=True, slots=True)
class Case:
    """A model.

    Attributes:
        text: The model.
        count: How many updates are raised with everything granted; None where either is right.
        draws: The inputs.
        assume: What is granted.
        in_body: Whether the starts are not values of the main graph.
    """

    text: str
    count: int | None
    draws: Draws = field(default_factory=lambda: SIZES)
    assume: tuple[str, ...] = ()
    in_body: bool = False
