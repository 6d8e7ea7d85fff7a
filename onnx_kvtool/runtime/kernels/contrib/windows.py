"""Windows that slide over the last axes: convolutions and pooling, channels at axis 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals

__all__ = ["Sliding", "average_pooled", "convolved", "in_front", "max_pooled", "to_the_end"]


@dataclass(frozen=True, slots=True)
class Sliding:
    """How a window moves, as the attributes of Conv and its kin say.

    Attributes:
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        dilations: One for each axis; None for 1.
        pads: Those in front of all axes, then those behind; None for 0.
        strides: One for each axis; None for 1.
        is_ceiled: Whether the last window may reach out behind.
    """

    auto_pad: str
    dilations: Sequence[int] | None
    pads: Sequence[int] | None
    strides: Sequence[int] | None
    is_ceiled: bool = False

    def over(self, x: Array, kernel: Sequence[int], fill: float, behind: float) -> Array:
        """Return the windows: (N, C, places..., kernel...).

        Args:
            x: (N, C, sizes...).
            kernel: The size of the window.
            fill: What padding holds.
            behind: What windows see that reach out behind the padding.

        Raises:
            KernelError: If attributes are not those of the rank of `x`, or nothing fits.
        """
        rank = x.ndim - 2
        strides, dilations = list(self.strides or (1,) * rank), list(self.dilations or (1,) * rank)
        pads = list(self.pads or (0,) * 2 * rank)
        if [len(kernel), len(strides), len(dilations), len(pads)] != [rank, rank, rank, 2 * rank]:
            raise KernelError(f"the attributes are not those of {rank} axes behind the channels")
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        for axis, size in enumerate(x.shape[2:]):
            stride, extent = strides[axis], extents[axis]
            before, after, count = self._along(size, extent, stride, pads[axis::rank])
            if count < 1:
                raise KernelError(f"a window of {extent} does not fit in axis {axis + 2}, {size}")
            more = max((count - 1) * stride + extent - size - before - after, 0)
            for widths, value in (((before, after), fill), ((0, more), behind)):
                if any(widths):
                    around = [(0, 0)] * x.ndim
                    around[axis + 2] = widths
                    x = np.pad(x, around, constant_values=x.dtype.type(value))
            x = np.take(x, np.arange((count - 1) * stride + extent), axis=axis + 2)
        found = sliding_window_view(x, extents, axis=tuple(range(2, x.ndim)))
        steps = (slice(None, None, step) for step in (*strides, *dilations))
        return np.asarray(found[(slice(None), slice(None), *steps)])

    def _along(
        self, size: int, extent: int, stride: int, pads: Sequence[int]
    ) -> tuple[int, int, int]:
        """Return the padding in front and behind, and how many places there are."""
        if self.auto_pad.startswith("SAME"):
            count = -(-size // stride)
            total = max((count - 1) * stride + extent - size, 0)
            first = total // 2 if self.auto_pad == "SAME_UPPER" else -(-total // 2)
            return first, total - first, count
        before, after = (0, 0) if self.auto_pad == "VALID" else (pads[0], pads[1])
        way = size + before + after - extent
        if not self.is_ceiled:
            return before, after, way // stride + 1
        count = -(-way // stride) + 1
        return before, after, count - ((count - 1) * stride >= size + before)


def convolved(x: Reals, w: Reals, sliding: Sliding, group: int) -> Reals:
    """Return a convolution.

    Args:
        x: (N, C, sizes...).
        w: (M, C / group, kernel...).
        sliding: How the window moves.
        group: Groups of channels that do not see each other.

    Returns:
        (N, M, places...).

    Raises:
        KernelError: If the channels do not fit.
    """
    if x.ndim != w.ndim or group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise KernelError(f"filters {w.shape} of {group} groups do not fit data {x.shape}")
    kernel, rank = w.shape[2:], x.ndim - 2
    parts = []
    for data, filters in zip(np.split(x, group, 1), np.split(w, group, 0), strict=True):
        windows = sliding.over(data, kernel, 0, 0)
        along = ([1, *range(2 + rank, 2 + 2 * rank)], [1, *range(2, 2 + rank)])
        parts.append(np.moveaxis(np.tensordot(windows, filters, along), -1, 1))
    return np.concatenate(parts, axis=1)


def max_pooled(x: Array, kernel: Sequence[int], sliding: Sliding) -> Array:
    """Return the greatest element of each window; padding is none."""
    least = np.iinfo(x.dtype.name).min if x.dtype.kind in "iu" else -math.inf
    windows = sliding.over(x, kernel, least, least)
    return np.asarray(windows.max(axis=tuple(range(x.ndim, windows.ndim))))


def average_pooled(
    x: Reals, kernel: Sequence[int], sliding: Sliding, *, counts_padding: bool
) -> Reals:
    """Return the mean of each window, of which padding is a part or not."""
    windows = sliding.over(x, kernel, 0, 0)
    inner = tuple(range(x.ndim, windows.ndim))
    ones = sliding.over(np.ones_like(x[:1, :1]), kernel, float(counts_padding), 0)
    return np.asarray(windows.sum(axis=inner) / ones.sum(axis=inner))


def in_front(x: Array) -> Array:
    """Return channels of the last axis at axis 1."""
    return np.moveaxis(x, -1, 1)


def to_the_end(x: Array) -> Array:
    """Return channels of axis 1 at the last axis, laid out so."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))
