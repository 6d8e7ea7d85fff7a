"""Sizes that may suit inputs at which a model looks through windows, as images and sound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Windows"]

_COMMON = {
    1: (
        400, 800, 1000, 1600, 2000, 3000, 3200, 4000, 8000, 16_000, 32_000, 48_000, 80_000, 160_000,
    ),
    2: (
        32, 64, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 480, 512, 518, 640, 800, 1024,
    ),
}  # fmt: skip
"""Sizes of pictures, and numbers of samples and of frames, that models are made for, by the number
of axes."""

_MOST_STEPS = {1: 4096, 2: 112}
"""Steps of the first window along an axis, by the number of axes. Twice as many may take a hundred
times the memory, where each step attends to each."""

_MULTIPLES = range(1, 17)

_REMAINDERS = (0, 1, 2)
"""Tokens for the class and for distillation, which join those of the patches."""


@dataclass(frozen=True, slots=True)
class Windows:
    """What a model says of the sizes of inputs through which windows move.

    Attributes:
        channels: Sizes that the weights of a convolution fix, by the name of the dimension.
        extents: Names of the dimensions along which windows move, in order of appearance.
        strides: How many elements of an input one step is, at each depth; ascending, with 1.
        first: Size and stride of the first window that moves over an input.
        tables: Rows of what may be tables of positions, one for each token.
        numbers: Sizes that stand in the model, in its weights and in the shapes it makes.
    """

    channels: Mapping[str, int] = field(default_factory=dict)
    extents: tuple[str, ...] = ()
    strides: tuple[int, ...] = (1,)
    first: tuple[int, int] = (1, 1)
    tables: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()

    def candidates(self) -> Iterator[dict[str, int]]:
        """Yield sizes for the extents, no two alike, the most telling first.

        Axes of different sizes come first, of two and three of the largest stride; then as many
        patches as a table of positions has rows, in a square; multiples of the stride; other
        rectangles of patches; what is common; and the numbers that stand in the model.
        """
        if not self.extents:
            return
        seen = []
        axes = min(len(self.extents), 2)
        largest = _MOST_STEPS[axes] * self.first[1] + self.first[0]
        for sizes in self._sizes(axes):
            if sizes not in seen and max(sizes.values()) <= largest:
                seen.append(sizes)
                yield sizes

    def _sizes(self, axes: int) -> Iterator[dict[str, int]]:
        stride = self.strides[-1]
        if axes == 1:
            yield from (self._all(factor * stride) for factor in (5, 8, 16))
            yield from (self._all(self._reaching(rows)) for rows in self.tables)
        else:
            yield {name: (2 + i % 2) * stride for i, name in enumerate(self.extents)}
            yield self._all(2 * stride)
            yield from self._squares()
        yield from (self._all(factor * stride) for factor in _MULTIPLES)
        if axes == 2:
            yield from self._rectangles()
        steps = sorted({n * stride for n in self.numbers for stride in self.strides})
        yield from (self._all(size) for size in (*_COMMON[axes], *steps) if size >= stride)

    def _squares(self) -> Iterator[dict[str, int]]:
        """Yield sizes of which the patches, with some other tokens, are the rows of a table.

        A second table may hold the other tokens.
        """
        for other in (0, *self.tables):
            for rows in self.tables:
                for remainder in _REMAINDERS:
                    count = max(rows - other - remainder, 0)
                    if (root := math.isqrt(count)) ** 2 == count and root > 1:
                        yield self._all(self._reaching(root))

    def _rectangles(self) -> Iterator[dict[str, int]]:
        for rows in self.tables:
            for remainder in _REMAINDERS:
                for one in range(math.isqrt(rows - remainder), 1, -1):
                    if (rows - remainder) % one == 0:
                        pair = self._reaching(one), self._reaching((rows - remainder) // one)
                        yield {name: pair[i % 2] for i, name in enumerate(self.extents)}
                        yield {name: pair[1 - i % 2] for i, name in enumerate(self.extents)}

    def _reaching(self, steps: int) -> int:
        """Return the size over which the first window makes so many steps."""
        window, stride = self.first
        return (steps - 1) * stride + window

    def _all(self, size: int) -> dict[str, int]:
        return dict.fromkeys(self.extents, size)
