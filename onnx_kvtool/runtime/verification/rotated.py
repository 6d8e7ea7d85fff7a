"""A model that keeps windows in order beside its form with circular caches, whose rows rotate."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.runtime.inputs.interface import Interface
from onnx_kvtool.runtime.sessions import Array, Arrays

__all__ = ["RotatingHost", "common_interface"]


@dataclass(frozen=True, slots=True)
class RotatingHost:
    """The host of the circular form: rows go in rotated, and come out in the order of the source.

    Attributes:
        caches: The caches that rotate, each with the input that says how many tokens there were.
        added: The inputs that only the circular form has: the tokens before a step, any number.
    """

    caches: Sequence[RotatedCache]
    added: frozenset[str]

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the inputs of the circular form.

        The source does not know how often its rows have moved where the number of tokens is an
        input of the circular form alone. It may be any; one is made of the rows themselves.
        """
        fed = dict(inputs)
        for cache in self.caches:
            if cache.position in self.added:
                fed[cache.position] = np.array([self._before(cache, inputs)], np.int64)
            fed[cache.past] = self._turned(cache, inputs, inputs[cache.past], 0, -1)
        return fed

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs, of the caches with their rows from the oldest to the newest."""
        read = dict(outputs)
        for cache in self.caches:
            value = outputs[cache.present]
            if value.shape == inputs[cache.past].shape:
                read[cache.present] = self._turned(cache, inputs, value, self._rows(cache, inputs))
        return read

    def _turned(
        self, cache: RotatedCache, inputs: Mapping[str, Array], rows: Array, new: int, way: int = 1
    ) -> Array:
        """Return rows in the order of the source (`way` 1), or as the circular form has them."""
        count = rows.shape[cache.axis]
        oldest = self._before(cache, inputs) + new
        if cache.is_filled_first:
            oldest = max(oldest, count)
        return np.roll(rows, -way * (oldest % count), axis=cache.axis) if count else rows

    def _before(self, cache: RotatedCache, inputs: Mapping[str, Array]) -> int:
        """Return the tokens before a step."""
        if cache.position not in self.added:
            return int(inputs[cache.position].reshape(-1)[0])
        first = next(one for one in self.caches if one.position == cache.position)
        return zlib.crc32(inputs[first.past].tobytes()) % 1009

    def _rows(self, cache: RotatedCache, inputs: Mapping[str, Array]) -> int:
        """Return the new rows of a step."""
        if isinstance(cache.rows, int):
            return cache.rows
        name, axis = cache.rows
        return int(inputs[name].shape[axis])


def common_interface(
    a: Interface, b: Interface, caches: Sequence[RotatedCache]
) -> tuple[Interface, frozenset[str]]:
    """Return the interface of B without the inputs that it has for `caches`, and their names."""
    count = len(a.inputs)
    positions = {cache.position for cache in caches}
    added = frozenset(port.name for port in b.inputs[count:] if port.name in positions)
    return replace(b, inputs=tuple(p for p in b.inputs if p.name not in added)), added
