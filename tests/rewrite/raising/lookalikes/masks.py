"""Masks that find their position in odd ways."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.forms import one_hot
from tests.rewrite.raising.lookalikes.case import Case

__all__ = ["CASES"]

CASES = {
    "a mask in the other branch": Case(
        one_hot(
            "on = Equal (starts, places)\n hit = Not (on)", select="present = Where (m, cache, upd)"
        ),
        1,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
    "a mask of positions in range by construction": Case(
        one_hot(
            "five = Constant <value = int64 {5}> ()\n wrapped = Mod (starts, five)\n"
            "hit = Equal (wrapped, places)"
        ),
        None,
    ),
    "a mask over a shifted range": Case(
        one_hot(places="int64[1,5] {2, 3, 4, 5, 6}"),
        1,
        Draws({"w": range(2, 7)}),
        ("in-range",),
    ),
    "a mask over a reversed range": Case(
        one_hot(places="int64[1,5] {4, 3, 2, 1, 0}"),
        None,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
    "a mask by difference": Case(
        one_hot(
            "zero = Constant <value = int64 {0}> ()\n gap = Sub (starts, places)\n"
            "hit = Equal (gap, zero)"
        ),
        None,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
    "masked products of integers": Case(
        one_hot(
            inputs="int32[2,3,5,7] cache, int32[2,3,1,7] upd, int64[2] w",
            outputs="int32[2,3,5,7] present",
            select="f = Cast <to = 6> (m)\n one = Constant <value = int32 {1}> ()\n"
            "keep = Sub (one, f)\n a = Mul (keep, cache)\n b = Mul (upd, f)\n"
            "present = Add (b, a)",
        ),
        1,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
}
