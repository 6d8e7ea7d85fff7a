"""How two models are to be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.core.budget import Budget
from onnx_kvtool.core.choices import RuntimeChoice
from onnx_kvtool.core.progress import Progress, silent
from onnx_kvtool.runtime.inputs.points import Directions

__all__ = ["STEPS", "Settings"]

STEPS = 2
"""Decode steps after each first run: one that reads what the first run wrote, and one that reads
what a step wrote."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How two models are compared.

    Attributes:
        cases: Number of sets of inputs, at least 1; None for the usual ones.
        steps: Decode steps after the first run of each case; None for the usual number.
        seed: Seed of the inputs that are drawn.
        dims: Sizes for symbolic dimensions, by name.
        positions: Inputs that are positions which count up by one, whatever the graph says of them.
        rotated: Caches whose rows A keeps in order and B as a circular cache.
        unpadded: Inputs that are 1 throughout, because no row is padding.
        is_in_range: Whether no start lies below 0, where a scatter counts from the end.
        runtime: What runs both; `auto` for onnxruntime where it runs both, else the reference.
        rtol: Relative tolerance for what is computed; None for that of the types.
        atol: Absolute tolerance for what is computed; None for that of the types.
        widened: Element type that B has where A has bfloat16; None where it has the same.
        is_a_right: Whether A is right by definition, so that nothing is said of models of which A
            does not run; else one that runs where the other does not is different.
        progress: Told of what is begun.
        budget: Memory and time that the comparison may take.
        thorough: Whether mistakes are planted at every place and in all cases, not in a sample.
        strict: Whether the caller fails where something was not covered.
        matching: Returns the name in B of each value of A whose node is matched to one of B; asked
            for models that have other names for most values. None where nobody can say.
        directions: Where the two models say different things, which inputs should reach.
    """

    cases: int | None = None
    steps: int | None = None
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    positions: frozenset[str] = frozenset()
    rotated: tuple[RotatedCache, ...] = ()
    unpadded: frozenset[str] = frozenset()
    is_in_range: bool = False
    runtime: RuntimeChoice = "auto"
    rtol: float | None = None
    atol: float | None = None
    widened: ir.DataType | None = None
    is_a_right: bool = False
    progress: Progress = field(default=silent, compare=False, repr=False)
    budget: Budget = field(default_factory=Budget)
    thorough: bool = False
    strict: bool = False
    matching: Callable[[], Mapping[str, str]] | None = field(
        default=None, compare=False, repr=False
    )
    directions: Directions = field(default_factory=Directions)
