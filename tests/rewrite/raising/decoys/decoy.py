"""A graph that looks like the update of a cache and is something else."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.rewrite.raising.brute_force import Draws

__all__ = ["INSIDE", "Decoy"]

INSIDE = Draws({"w": range(4), "p": range(4)})
"""Starts within a cache of 5 rows, for 2 rows."""


@dataclass(frozen=True, slots=True)
class Decoy:
    """A model that must not be raised.

    Attributes:
        text: The model.
        draws: Inputs for which it runs.
        granted: Assumptions that hold for them.
        is_defined: Whether it ever runs with a result that ONNX defines.
    """

    text: str
    draws: Draws = field(default_factory=Draws)
    granted: tuple[str, ...] = ("contiguous", "in-range", "finite")
    is_defined: bool = True
