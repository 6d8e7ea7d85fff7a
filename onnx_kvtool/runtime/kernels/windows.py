"""Windows that slide over the last axes: convolutions and pooling, channels at axis 1.

Pooling joins windows of 1, 2, 4, ... elements to the wanted size, axis by axis. The number of steps
is that of the binary digits of the size, no sum is the difference of two others, and elements are
joined from left to right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import require_room
from onnx_kvtool.runtime.kernels.normalization.layer import Reals

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Way:
    """How a window moves along one axis.

    Attributes:
        axis: The axis.
        size: Its size.
        kernel: Number of elements of a window.
        dilation: Distance of two of these.
        stride: Distance of two windows.
        before: Padding before the axis.
        after: Padding after it; the last window may reach beyond.
        count: Number of windows; 0 if the padded axis is a little too short.
    """

    axis: int
    size: int
    kernel: int
    dilation: int
    stride: int
    before: int
    after: int
    count: int

    @property
    def length(self) -> int:
        """Elements from the first window to the last one, as if there were at least one window."""
        return max(self.count - 1, 0) * self.stride + (self.kernel - 1) * self.dilation + 1

    def seen(self, *, padding: bool) -> npt.NDArray[np.int64]:
        """Return the number of elements of each window, with padding or without."""
        first = np.arange(self.count) * self.stride - self.before
        start, end = (-self.before, self.size + self.after) if padding else (0, self.size)
        reached = [-((first - edge) // self.dilation) for edge in (start, end)]
        below, all_below = (np.clip(number, 0, self.kernel) for number in reached)
        return np.asarray(all_below - below)

    def padded(self, x: Reals, value: float) -> Reals:
        """Return the part of `x` that windows see, padded."""
        behind = self.length - self.size - self.before
        x = x[self._along(slice(0, self.size + min(behind, 0)))]
        if not self.before and behind <= 0:
            return x
        widths = [(0, 0)] * x.ndim
        widths[self.axis] = (self.before, max(behind, 0))
        shape = list(x.shape)
        shape[self.axis] = self.length
        require_room(shape, x.dtype, "the padded input")
        return np.pad(x, widths, constant_values=x.dtype.type(value))

    def slid(self, x: Reals, join: Callable[[Reals, Reals], Reals]) -> Reals:
        """Return the elements of each window of a padded array, joined; `join` is associative."""
        found: Reals | None = None
        at, width = 0, 1
        while True:
            if self.kernel & width:
                start = at * self.dilation
                end = start + self.count * self.stride
                part = x[self._along(slice(start, end, self.stride))]
                found = part if found is None else join(found, part)
                at += width
            if at == self.kernel and found is not None:
                return found
            step = width * self.dilation
            front, behind = slice(None, x.shape[self.axis] - step), slice(step, None)
            x = join(x[self._along(front)], x[self._along(behind)])
            width *= 2

    def seen_at(self, place: int) -> slice:
        """Return the slice of a padded axis with the element at one place of each window."""
        first = place * self.dilation
        return slice(first, first + max(self.count - 1, 0) * self.stride + 1, self.stride)

    def _along(self, which: slice) -> tuple[slice, ...]:
        return (*[slice(None)] * self.axis, which)


@dataclass(frozen=True, slots=True)
class Sliding:
    """How a window moves, by the attributes of Conv and pooling.

    `pads` lists the padding before all axes, then that after them. If `is_ceiled`, the last window
    may reach beyond the end.
    """

    auto_pad: str
    dilations: Sequence[int] | None
    pads: Sequence[int] | None
    strides: Sequence[int] | None
    is_ceiled: bool = False

    def ways(self, shape: Sequence[int], kernel: Sequence[int]) -> list[_Way]:
        """Return how a window moves along each axis after N and C.

        Raises:
            KernelError: If attributes do not fit the rank or are too small, or no window fits.
        """
        rank = len(shape) - 2
        if rank < 0:
            raise KernelError(f"the data have shape {tuple(shape)}, expected two axes or more")
        strides, dilations = list(self.strides or (1,) * rank), list(self.dilations or (1,) * rank)
        pads = list(self.pads or (0,) * 2 * rank)
        if [len(kernel), len(strides), len(dilations), len(pads)] != [rank, rank, rank, 2 * rank]:
            raise KernelError(f"the attributes are not those of {rank} axes behind the channels")
        given = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
        for name, numbers in given.items():
            least = 0 if name == "pads" else 1
            if min(numbers, default=least) < least:
                raise KernelError(f"`{name}` is {list(numbers)}, expected {least} or more each")
        ways = []
        for axis, size in enumerate(shape[2:]):
            extent = (kernel[axis] - 1) * dilations[axis] + 1
            before, after, count = self._along(size, extent, strides[axis], pads[axis::rank])
            if count < 0:
                raise KernelError(f"a window of {extent} does not fit in axis {axis + 2}, {size}")
            along = (size, kernel[axis], dilations[axis], strides[axis], before, after, count)
            ways.append(_Way(axis + 2, *along))
        return ways

    def _along(
        self, size: int, extent: int, stride: int, pads: Sequence[int]
    ) -> tuple[int, int, int]:
        """Return the padding before and after the axis, and the number of windows."""
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


def convolved(x: Reals, weight: Reals, groups: int, sliding: Sliding) -> Reals:
    """Return the weighted sum of each window, one element of the kernel after the other.

    Args:
        x: (N, groups * C, sizes...); padding is 0.
        weight: (groups * M, C, kernel...).
        groups: Number of groups, which share no channels.
        sliding: How the kernel moves.

    Returns:
        (N, groups * M, places...).

    Raises:
        KernelError: See `Sliding.ways`.
    """
    ways = sliding.ways(x.shape, weight.shape[2:])
    for way in ways:
        x = way.padded(x, 0)
    places = tuple(way.count for way in ways)
    maps, depth = weight.shape[0] // groups, weight.shape[1]
    shape = (len(x), groups, maps, math.prod(places))
    require_room(shape, x.dtype)
    result = np.zeros(shape, x.dtype)
    if result.size:
        for place in np.ndindex(*weight.shape[2:]):
            at = [way.seen_at(one) for way, one in zip(ways, place, strict=True)]
            part = x[(slice(None), slice(None), *at)].reshape(len(x), groups, depth, shape[-1])
            factor = weight[(slice(None), slice(None), *place)].reshape(groups, maps, depth)
            result += factor * part if depth == 1 else factor @ part
    return result.reshape(len(x), groups * maps, *places)


def spread(
    x: Reals,
    weight: Reals,
    groups: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    sizes: Sequence[int],
) -> Reals:
    """Add each element, times the filters, to the places around it: what Conv does, turned round.

    Args:
        x: (N, groups * C, sizes...).
        weight: (groups * C, M, kernel...).
        groups: Number of groups, which share no channels.
        strides: Distance of the places of two elements.
        dilations: Distance of two elements of a filter.
        sizes: Those of the result, which has room for all.

    Returns:
        (N, groups * M, sizes...).
    """
    maps, depth = weight.shape[1], weight.shape[0] // groups
    shape = (len(x), groups * maps, *sizes)
    require_room(shape, x.dtype)
    result = np.zeros(shape, x.dtype)
    rows = x.reshape(len(x), groups, depth, math.prod(x.shape[2:]))
    for place in np.ndindex(*weight.shape[2:]) if rows.size else ():
        at = [
            slice(one * gap, one * gap + (size - 1) * step + 1, step)
            for one, gap, size, step in zip(place, dilations, x.shape[2:], strides, strict=True)
        ]
        factor = weight[(slice(None), slice(None), *place)].reshape(groups, depth, maps)
        part = factor.swapaxes(1, 2) @ rows
        result[(slice(None), slice(None), *at)] += part.reshape(*shape[:2], *x.shape[2:])
    return result


def max_pooled(x: Reals, kernel: Sequence[int], sliding: Sliding) -> tuple[Reals, Positions]:
    """Return the greatest element of each window, and its place; padding does not count.

    Of equal elements the first is taken; NaN only if there is nothing else.

    Returns:
        (N, C, places...), and positions in each channel, in row-major order, of the same shape.

    Raises:
        KernelError: See `Sliding.ways`; if a window sees padding alone.
    """
    ways = sliding.ways(x.shape, kernel)
    for way in ways:
        _demand_data(way)
    size = math.prod(x.shape[2:])
    if not size:  # there is no window
        none = (*x.shape[:2], *(way.count for way in ways))
        return np.zeros(none, x.dtype), np.zeros(none, np.int64)
    values = x.reshape(*x.shape[:2], size)
    places = np.arange(size, dtype=np.int64).reshape(1, 1, *x.shape[2:])
    found: Positions = np.broadcast_to(places, x.shape)

    def at(positions: Positions) -> Reals:
        flat = positions.reshape(*values.shape[:2], math.prod(positions.shape[2:]))
        return np.take_along_axis(values, flat, axis=2).reshape(positions.shape)

    def greater(one: Reals, other: Reals) -> Reals:
        a, b = at(one), at(other)
        better = (b > a) | ((a != a) & (b == b))  # NaN is not itself
        return np.where((other >= 0) & ((one < 0) | better), other, one)

    for way in reversed(ways):
        found = way.slid(way.padded(found, -1), greater)
    return at(found), found


def sum_pooled(x: Reals, kernel: Sequence[int], sliding: Sliding) -> Reals:
    """Return the sum of each window; padding is 0."""
    for way in reversed(sliding.ways(x.shape, kernel)):
        x = way.slid(way.padded(x, 0), np.add)
    return x


def average_pooled(
    x: Reals, kernel: Sequence[int], sliding: Sliding, *, counts_padding: bool
) -> Reals:
    """Return the mean of each window, with or without its padding.

    Raises:
        KernelError: See `Sliding.ways`; if a window sees padding alone, which does not count.
    """
    total = np.ones((), x.dtype)
    for way in sliding.ways(x.shape, kernel):
        if not counts_padding:
            _demand_data(way)
        total = np.multiply.outer(total, way.seen(padding=counts_padding).astype(x.dtype))
    return np.asarray(sum_pooled(x, kernel, sliding) / total)


def _demand_data(way: _Way) -> None:
    empty = np.flatnonzero(way.seen(padding=False) == 0)
    if len(empty):
        raise KernelError(f"window {empty[0]} along axis {way.axis} sees padding alone")
