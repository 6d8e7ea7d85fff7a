"""Who holds which buffer, so that a kernel may write into one that nobody else will read."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.kernel import Array, Value

__all__ = ["Buffers"]


class Buffers:
    """Counts, for each buffer, the values of running graphs that lie in it.

    Views share the buffer of the array they were taken from; numpy keeps them linked.
    """

    def __init__(self) -> None:
        # The array is kept beside its count, so that its identity is not given to another.
        self._held: dict[int, tuple[int, Array]] = {}

    def hold(self, value: Value) -> None:
        """Note that one more value lies where `value` does."""
        if isinstance(value, np.ndarray):
            root = _root(value)
            count, _ = self._held.get(id(root), (0, root))
            self._held[id(root)] = (count + 1, root)
        elif isinstance(value, list):
            for item in value:
                self.hold(item)

    def release(self, value: Value) -> None:
        """Note that a value held before is not read any more."""
        if isinstance(value, np.ndarray):
            key = id(_root(value))
            count, root = self._held[key]
            if count == 1:
                del self._held[key]
            else:
                self._held[key] = (count - 1, root)
        elif isinstance(value, list):
            for item in value:
                self.release(item)

    def is_free(self, value: Value) -> bool:
        """Return whether `value` is a whole writable array whose buffer no held value lies in."""
        if not isinstance(value, np.ndarray) or not value.flags.writeable:
            return False
        root = _root(value)
        return root.base is None and root.size == value.size and id(root) not in self._held


def _root(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
