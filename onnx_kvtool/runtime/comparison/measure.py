"""How close outputs have to be."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.runtime.comparison.compare import Tolerance, tolerance_of
from onnx_kvtool.runtime.sessions import Array

__all__ = ["Measure"]


@dataclass(frozen=True, slots=True)
class Measure:
    """How close outputs have to be.

    Attributes:
        moved: Outputs that any right evaluation gives with the same bits.
        precision: The tolerance of the coarsest type that the models compute in.
        exact: Whether both models are the same but for names and weights, so that every bit of
            every output has to agree.
        rtol: Relative tolerance that the user asked for; None for that of the types.
        atol: Absolute tolerance that the user asked for; None for that of the types.
        random: Outputs that random numbers go into: their types and shapes are compared alone.
    """

    moved: frozenset[str]
    precision: Tolerance
    exact: bool = False
    rtol: float | None = None
    atol: float | None = None
    random: frozenset[str] = frozenset()

    @property
    def is_given(self) -> bool:
        """Whether the user asked for a tolerance, which no measured noise widens."""
        return self.rtol is not None or self.atol is not None

    def of(self, value: Array) -> Tolerance:
        """Return the tolerance for results of the dtype of `value`."""
        usual = tolerance_of(value.dtype)
        if usual.atol:  # a type that rounding can reach
            coarse = self.precision
            usual = Tolerance(max(usual.rtol, coarse.rtol), max(usual.atol, coarse.atol))
        return Tolerance(
            usual.rtol if self.rtol is None else self.rtol,
            usual.atol if self.atol is None else self.atol,
        )
