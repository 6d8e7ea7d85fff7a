"""Where the rows of one cache stand in two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.sessions import Array

__all__ = ["Arrangement", "FixedCache"]

Places = npt.NDArray[np.signedinteger]

Arrangement = Literal["grows", "first", "last"]
"""How A keeps rows: in a cache of as many as are in use; in one of a fixed size, from its first
row on until it is full; or up to its last row, as if there always had been rows before. A full one
drops its first rows for new ones."""


@dataclass(frozen=True, slots=True)
class FixedCache:
    """A cache that A keeps in another way than B, where it has a fixed number of rows.

    Attributes:
        past: Name of the input of both models.
        present: Name of the output of both models.
        axis: The sequence axis, counted from the front.
        capacity: Rows that it has in B.
        is_circular: Whether row p of the text stands at p modulo the capacity in B, else at p.
        arrangement: How A keeps rows.
        most: Rows that A keeps at most; None for all of them.
    """

    past: str
    present: str
    axis: int
    capacity: int
    is_circular: bool = False
    arrangement: Arrangement = "grows"
    most: int | None = None

    def fixed(self, rows: Array, tokens: int, rest: Array) -> Array:
        """Return the cache of B that holds what `rows` of A hold after so many tokens.

        Args:
            rows: The cache of A.
            tokens: Tokens that went by.
            rest: Rows that are not in use in B, in the shape of the result.
        """
        buffer = np.array(rest, rows.dtype)
        buffer[self._at(self._places(tokens, rows.shape[self.axis]))] = rows
        return buffer

    def kept(self, buffer: Array, tokens: int) -> Array:
        """Return the cache of A that holds what `buffer` of B holds after so many tokens."""
        count = tokens if self.most is None else self.most
        if self.arrangement == "grows":
            count = min(count, tokens)
        return buffer[self._at(self._places(tokens, count))]

    def _places(self, tokens: int, count: int) -> Places:
        """Return where the `count` rows of A stand in B."""
        # Of a cache that is not full yet the rows that follow stand at the same places in both.
        last = max(tokens, count) if self.arrangement == "first" else tokens
        places = np.arange(last - count, last)
        return places % self.capacity if self.is_circular else places

    def _at(self, rows: Places) -> tuple[slice | Places, ...]:
        return (*(slice(None),) * self.axis, rows)
