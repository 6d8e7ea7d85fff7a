"""Where the rows of one cache stand in two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnx_kvtool.runtime.sessions import Array

__all__ = ["Arrangement", "FixedCache"]

Arrangement = Literal["grows", "first", "last"]
"""How A keeps rows: in a cache of as many as are in use; in one of a fixed size, from its first
row on until it is full; or up to its last row. A full one drops its first rows for new ones."""


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

    def in_use(self, tokens: int) -> slice:
        """Return which rows of A are in use after so many tokens.

        Where both models have as many, those that hold no token yet count as well: A may read them.
        """
        if self.arrangement != "grows" and self.most == self.capacity:
            return slice(0, self.capacity)
        count = tokens if self.most is None else min(tokens, self.most)
        if self.arrangement == "last" and self.most is not None:
            return slice(self.most - count, self.most)
        return slice(count)

    def fixed(self, rows: Array, tokens: int, rest: Array) -> Array:
        """Return the cache of B that holds what `rows` of A hold after so many tokens.

        Args:
            rows: The cache of A.
            tokens: Tokens that went by.
            rest: Rows that are not in use in B, in the shape of the result.
        """
        held = rows[self._at(self.in_use(tokens))]
        buffer = np.array(rest, rows.dtype)
        count = held.shape[self.axis]
        buffer[self._at(self._places(tokens, count))] = held
        return buffer

    def kept(self, buffer: Array, tokens: int) -> Array:
        """Return the cache of A that holds what `buffer` of B holds after so many tokens.

        Rows of A that are not in use are zeros.
        """
        use = self.in_use(tokens)
        held = buffer[self._at(self._places(tokens, use.stop - (use.start or 0)))]
        if self.arrangement == "grows" or self.most is None:
            return held
        shape = list(buffer.shape)
        shape[self.axis] = self.most
        rows = np.zeros(shape, buffer.dtype)
        rows[self._at(use)] = held
        return rows

    def without_rest(self, rows: Array, tokens: int) -> Array:
        """Return the cache of A with zeros in rows that are not in use."""
        if self.arrangement == "grows":
            return rows
        use = self._at(self.in_use(tokens))
        found = np.zeros_like(rows)
        found[use] = rows[use]
        return found

    def _places(self, tokens: int, count: int) -> np.ndarray:
        """Return where the last `count` rows stand in B."""
        last = max(tokens, count) if self.arrangement == "first" else tokens
        places = np.arange(last - count, last)
        return places % self.capacity if self.is_circular else places

    def _at(self, rows: slice | np.ndarray) -> tuple[slice | np.ndarray, ...]:
        return (*(slice(None),) * self.axis, rows)
