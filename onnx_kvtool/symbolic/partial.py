"""Small integer tensors of which some elements may be unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "Partial"]

LARGEST = 4096
"""Most elements of a value that is folded; larger tensors are weights, and never read."""


@dataclass(frozen=True, slots=True)
class Partial:
    """An integer tensor of which some elements may be unknown.

    Attributes:
        numbers: int64, of the value's shape; an unknown element holds any number.
        known: bool, of the same shape.
    """

    numbers: NDArray[np.int64]
    known: NDArray[np.bool_]

    @staticmethod
    def whole(array: Any) -> Partial:
        """Return a tensor whose elements are all known."""
        numbers = np.asarray(array).astype(np.int64)
        return Partial(numbers, np.ones(numbers.shape, np.bool_))

    @property
    def complete(self) -> bool:
        """Whether every element is known."""
        return bool(self.known.all())

    @property
    def number(self) -> int | None:
        """The only element, known or not; None where there is none or several."""
        return int(self.numbers.reshape(())) if self.numbers.size == 1 else None

    def both(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Partial:
        """Return the tensor after a movement that applies to numbers and mask alike."""
        return Partial(change(self.numbers), change(self.known))
