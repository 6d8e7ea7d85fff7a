"""Who holds which buffer, so that a kernel may write into one that nobody else will read."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.kernel import Array, Value

__all__ = ["Buffers", "Uncounted", "root"]


class _Count:
    """How many values lie in a buffer."""

    __slots__ = ("array", "number")

    def __init__(self, array: Array) -> None:
        self.array, self.number = array, 1


class Buffers:
    """Counts, for each buffer, the values of running graphs that lie in it.

    Views share the buffer of the array they were taken from; numpy keeps them linked.
    """

    def __init__(self) -> None:
        # The array is kept beside its count, so that its identity is not given to another.
        self._held: dict[int, _Count] = {}

    def hold(self, value: Value) -> None:
        """Note that one more value lies where `value` does."""
        if isinstance(value, np.ndarray):
            base = root(value)
            held = self._held.get(id(base))
            if held is None:
                self._held[id(base)] = _Count(base)
            else:
                held.number += 1
        elif isinstance(value, list):
            for item in value:
                self.hold(item)

    def release(self, value: Value) -> None:
        """Note that a value held before is not read any more."""
        if isinstance(value, np.ndarray):
            key = id(root(value))
            held = self._held[key]
            held.number -= 1
            if not held.number:
                del self._held[key]
        elif isinstance(value, list):
            for item in value:
                self.release(item)

    def is_free(self, value: Value) -> bool:
        """Return whether `value` is a whole writable array whose buffer no held value lies in."""
        if not isinstance(value, np.ndarray) or not value.flags.writeable:
            return False
        base = root(value)
        return base.base is None and base.size == value.size and id(base) not in self._held


class Uncounted(Buffers):
    """Counts nothing: for models in which no kernel ever writes into what it is given."""

    def hold(self, value: Value) -> None:
        """Do nothing."""

    def release(self, value: Value) -> None:
        """Do nothing."""

    def is_free(self, value: Value) -> bool:
        """Return that it is not."""
        return False


def root(array: Array) -> Array:
    """Return the array whose buffer `array` lies in; itself for one that is no view."""
    while isinstance(base := array.base, np.ndarray):
        array = base
    return array
