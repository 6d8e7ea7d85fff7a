"""The cache of GroupQueryAttention that holds no more than a window of the past.

docs/ContribOperators.md gives the layout: rows 0 to L - 1 of a buffer hold the last L positions in
order, of T so far. L is T as long as that is within the capacity C of the buffer; beyond it,
G = C - W + 1 positions leave at once, as often as needed, so that the window W stays.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.grouped_cache import Lengths
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["Window", "read_window"]


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A cache that drops what has left the window.

    Attributes:
        capacity: Rows of the past and the present buffers.
        size: Keys that a query sees up to its own.
    """

    capacity: int
    size: int

    def resident(self, positions: int) -> int:
        """Return how many rows are kept after so many positions."""
        beyond = positions - self.capacity
        leaving = self.capacity - self.size + 1
        return positions - leaving * max(0, -(-beyond // leaving))

    def located(self, lengths: Lengths) -> Lengths:
        """Return lengths among the rows that are kept and the new ones, instead of all."""
        kept = np.array([self.resident(past) for past in lengths.past.tolist()], np.int64)
        new = lengths.valid - lengths.past
        return dataclasses.replace(
            lengths,
            buffer=int(kept.max(initial=0)) + lengths.length,
            past=kept,
            valid=kept + new,
            first=lengths.past - kept,
        )

    def evicted(self, rows: Array, located: Lengths) -> Array:
        """Return buffers of the capacity with what is kept of rows, and zeros behind that.

        Args:
            rows: (B, KV, buffer, D), rows that were kept before and the new ones behind them.
            located: Their lengths.
        """
        batch, heads, _, size = rows.shape
        present = np.zeros((batch, heads, self.capacity, size), rows.dtype)
        for row, (valid, first) in enumerate(
            zip(located.valid.tolist(), located.first.tolist(), strict=True)
        ):
            kept = self.resident(first + valid)
            present[row, :, :kept] = rows[row, :, valid - kept : valid]
        return present


def read_window(past_key: Array | None, window: int | None, qk_output: int) -> Window:
    """Return the window cache of a node whose `sliding_window_cache` is 1.

    Raises:
        KernelError: If there is no past, no window or no room for it in the past; if scores are
            asked for, whose columns nobody defines.
    """
    if past_key is None or past_key.ndim != 4:
        raise KernelError("`sliding_window_cache` is 1, but there are no past buffers")
    if window is None:
        raise KernelError("`sliding_window_cache` is 1, but there is no `local_window_size`")
    if past_key.shape[2] < window:
        raise KernelError(
            f"`past_key` has {past_key.shape[2]} rows, expected at least {window}, the "
            "`local_window_size`"
        )
    if qk_output:
        raise KernelError(f"`qk_output` is {qk_output}, expected 0 as `sliding_window_cache` is 1")
    return Window(past_key.shape[2], window)
