"""Positions that wrap elsewhere than at the end of the axis."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.decoys.decoy import Decoy
from tests.rewrite.raising.forms import START, UPDATE, elements

__all__ = ["DECOYS"]

DECOYS = {
    "positions wrap one too early": Decoy(
        elements("low = Sub (capacity, one)\n sum = Add (starts, rows)\n pos = Mod (sum, low)")
    ),
    "positions wrap at a size that is not the capacity": Decoy(
        elements(
            "low = Constant <value = int64 {3}> ()\n sum = Add (starts, rows)\npos = Mod (sum, low)"
        )
    ),
    "positions wrap at the number of heads": Decoy(
        elements(
            "sizes = Shape (cache)\n heads = Gather (sizes, one)\n"
            "sum = Add (starts, rows)\n pos = Mod (sum, heads)"
        )
    ),
    "the capacity is free and positions wrap at 5": Decoy(
        elements(
            "sum = Add (starts, rows)\n pos = Mod (sum, capacity)",
            inputs=f"float[2,3,S,7] cache, {UPDATE}, {START}",
            outputs="float[2,3,S,7] present",
        ),
        Draws(sizes={"S": (5, 6, 7)}),
    ),
    "positions wrap at twice the capacity, then at 3": Decoy(
        elements(
            "double = Add (capacity, capacity)\n sum = Add (starts, rows)\n"
            "wrapped = Mod (sum, double)\n three = Constant <value = int64 {3}> ()\n"
            "pos = Mod (wrapped, three)"
        )
    ),
    "positions wrap by the sign of the dividend": Decoy(
        elements(
            "sum = Add (starts, rows)\n pos = Mod <fmod = 1> (sum, less)".replace(
                "pos = ", "less = Sub (capacity, one)\n pos = "
            )
        )
    ),
}
