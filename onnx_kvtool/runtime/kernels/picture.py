"""Operators on images: sliding windows, resizing, and places in images."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import lt, neg, sub

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import read_integers, require_room
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape
from onnx_kvtool.runtime.kernels.windows import (
    Sliding,
    average_pooled,
    convolved,
    max_pooled,
    spread,
    sum_pooled,
)

_Listed = Ints | None
_SINGLE = np.float32


def average_pool(
    X: Array,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: _Listed = None,
    kernel_shape: Ints,
    pads: _Listed,
    strides: _Listed,
) -> Array:
    """Compute AveragePool of every version: the mean of each window.

    With `ceil_mode` the last window may reach beyond the padding; elements there do not count. It
    does so with VALID too, as in onnx's inference and in onnxruntime 1.32, against the text.

    `pads` lists the padding before all axes, then that after them. With `count_include_pad` it
    counts, as 0.

    Raises:
        KernelError: If attributes are not those of the rank, nothing fits, or a window sees
            padding alone, which does not count.
    """
    sliding = Sliding(auto_pad, dilations, pads, strides, ceil_mode != 0)
    mean = average_pooled(widened(X), kernel_shape, sliding, counts_padding=count_include_pad != 0)
    return narrowed(mean, X.dtype)


def _biased(maps: Reals, B: Array | None) -> Reals:
    """Return (N, M, places...) with one number of B added to each map."""
    if B is None:
        return maps
    check_shape("B", B.shape, maps.shape[1:2], "one number for each map")
    maps += widened(B).reshape(-1, *[1] * (maps.ndim - 2))
    return maps


def conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str,
    dilations: _Listed,
    group: int,
    kernel_shape: _Listed,
    pads: _Listed,
    strides: _Listed,
) -> Array:
    """Compute Conv of every version; 16-bit types in float32, rounded once.

    X is (N, C, sizes...), W (M, C / group, kernel...), B (M,), and the result (N, M, places...).
    For the attributes see `average_pool`.

    Raises:
        KernelError: If shapes do not fit each other or the groups, attributes are not those of the
            rank, or nothing fits.
    """
    if W.ndim != X.ndim or X.ndim < 2 or group < 1 or W.shape[0] % group:
        raise KernelError(
            f"`X` and `W` have shapes {X.shape} and {W.shape}, expected (N, C, ...) and "
            f"(M, C / group, ...) with {group} groups in M"
        )
    expected = (W.shape[0], X.shape[1] // group, *(kernel_shape or W.shape[2:]))
    if W.shape != expected or X.shape[1] % group:
        raise KernelError(
            f"`W` has shape {W.shape}, expected {expected}: `X` has {X.shape[1]} channels in "
            f"{group} groups"
        )
    sliding = Sliding(auto_pad, dilations, pads, strides)
    result = convolved(widened(X), widened(W), group, sliding)
    return narrowed(_biased(result, B), X.dtype)


def conv_transpose(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str,
    dilations: _Listed,
    group: int,
    kernel_shape: _Listed,
    output_padding: _Listed,
    output_shape: _Listed,
    pads: _Listed,
    strides: _Listed,
    is_before_11: bool = False,
) -> Array:
    """Compute ConvTranspose: each element, times the filters, is added to the places around it.

    Args:
        X: (N, C, sizes...).
        W: (C, M / group, kernel...).
        B: (M,).
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER; with SAME_UPPER, the smaller half of what
            is cut off lies in front.
        dilations: For each axis; 1 if absent.
        group: Number of groups.
        kernel_shape: That of `W`.
        output_padding: Elements added behind each axis; 0 if absent.
        output_shape: The sizes of the result, in place of pads.
        pads: What is cut off in front, then behind; 0 if absent.
        strides: For each axis; 1 if absent.
        is_before_11: Whether halves lie on the other side.

    Returns:
        (N, M, sizes...).

    Raises:
        KernelError: If shapes do not fit each other or the groups, attributes are not those of the
            rank, nothing is left, or more is wanted than there is.
    """
    rank, kernel = X.ndim - 2, W.shape[2:]
    if rank < 0 or W.ndim != X.ndim or len(W) != X.shape[1] or group < 1 or len(W) % group:
        raise KernelError(
            f"`X` and `W` have shapes {X.shape} and {W.shape}, expected (N, C, ...) and "
            f"(C, M / group, ...) with {group} groups in C"
        )
    check_shape("W", kernel, kernel_shape or kernel, "`kernel_shape`, behind two axes")
    ones, none = (1,) * rank, (0,) * rank
    ways = (strides or ones, dilations or ones, output_padding or none)
    cut = pads or none * 2
    if {*map(len, ways), len(output_shape or ones)} != {rank} or len(cut) != 2 * rank:
        raise KernelError(f"the attributes are not those of {rank} axes behind the channels")
    sizes, wanted = [], []
    for size, extent, step, gap, more in zip(X.shape[2:], kernel, *ways, strict=True):
        if step < 1 or gap < 1 or not 0 <= more < max(step, gap):
            raise KernelError(
                f"`strides`, `dilations` and `output_padding` have {step}, {gap} and {more}, "
                "expected 1 or more, 1 or more, and less than the larger of these"
            )
        sizes.append((size - 1) * step + (extent - 1) * gap + 1 + more)
        wanted.append(size * step)
    if output_shape or auto_pad.startswith("SAME"):
        total = [size - end for size, end in zip(sizes, output_shape or wanted, strict=True)]
        is_small = (auto_pad == "SAME_UPPER") is not is_before_11
        first = [max(each // 2 if is_small else -(-each // 2), 0) for each in total]
        cut = (*first, *(each - front for each, front in zip(total, first, strict=True)))
    elif auto_pad == "VALID":
        cut = none * 2
    at = [slice(*ends) for ends in zip(cut[:rank], map(sub, sizes, cut[rank:]), strict=True)]
    # As in onnxruntime 1.32, zeros follow where `output_shape` is less than a step larger.
    fits = map(lt, map(neg, cut[rank:]), ways[0] if output_shape else ones)
    if min(cut[:rank], default=0) < 0 or not all(fits) or any(p.stop <= p.start for p in at):
        raise KernelError(f"{list(cut)} elements cannot be cut off sizes {sizes}")
    sizes = [max(size, part.stop) for size, part in zip(sizes, at, strict=True)]
    whole = spread(widened(X), widened(W), group, *ways[:2], sizes)
    result = whole[(slice(None), slice(None), *at)]
    return narrowed(_biased(result, B), X.dtype)


def lp_pool(
    X: Array,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    dilations: _Listed = None,
    kernel_shape: _Listed,
    p: float | None,
    pads: _Listed,
    strides: _Listed,
) -> Array:
    """Compute LpPool of every version: the norm of order `p` of each window.

    As `average_pool`; padding is 0. Powers are taken in float64.

    Raises:
        KernelError: As `average_pool`; if `p` is not above 0, or version 1 has no `kernel_shape`.
    """
    if kernel_shape is None:
        raise KernelError("`kernel_shape` is missing, expected one size for each axis")
    sliding = Sliding(auto_pad, dilations, pads, strides, ceil_mode != 0)
    return _norm(X, kernel_shape, sliding, 2 if p is None else p)


def global_lp_pool(X: Array, *, p: float | None) -> Array:
    """Compute GlobalLpPool of every version: `lp_pool` of one window for each channel."""
    return _norm(X, X.shape[2:], Sliding("VALID", None, None, None), 2 if p is None else p)


def _norm(x: Array, kernel: Ints, sliding: Sliding, p: float) -> Array:
    if not p > 0:
        raise KernelError(f"`p` is {p}, expected a number above 0")
    powers = np.abs(x.astype(np.float64)) ** p
    return narrowed(sum_pooled(powers, kernel, sliding) ** (1 / p), x.dtype)


def max_pool(
    X: Array,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    dilations: _Listed = None,
    kernel_shape: Ints,
    pads: _Listed,
    storage_order: int = 0,
    strides: _Listed,
) -> tuple[Array, Array]:
    """Compute MaxPool of every version: the greatest element of each window, and where it is.

    As `average_pool`, but padding never counts. Of equal elements the first is taken; NaN, which
    the text does not mention, only if there is nothing else.
    With `storage_order`, positions in a channel count along the first of its axes first.

    Returns:
        Values, and positions in the flat `X`, int64; both (N, C, places...).

    Raises:
        KernelError: As `average_pool`.
    """
    sliding = Sliding(auto_pad, dilations, pads, strides, ceil_mode != 0)
    values, found = max_pooled(X, kernel_shape, sliding)
    sizes = X.shape[2:]
    if storage_order and found.size:
        found = np.ravel_multi_index(np.unravel_index(found, sizes), sizes, order="F")
    channels = np.arange(X.shape[0] * X.shape[1]).reshape(*X.shape[:2], *[1] * len(sizes))
    return values, np.asarray(found + channels * int(np.prod(sizes)), np.int64)


def global_max_pool(X: Array) -> Array:
    """Compute GlobalMaxPool of every version: `max_pool` of one window for each channel."""
    return max_pooled(X, X.shape[2:], Sliding("VALID", None, None, None))[0]


def upsample_1(X: Array, *, height_scale: float, mode: str, width_scale: float) -> Array:
    """Compute Upsample-1: as `upsample_7`, along the last two of four axes."""
    if X.ndim != 4:
        raise KernelError(f"`X` has shape {X.shape}, expected four dimensions")
    return upsample_7(X, [1, 1, height_scale, width_scale], mode=mode)


def upsample_7(X: Array, scales: Array | Sequence[float], *, mode: str) -> Array:
    """Compute Upsample-7 and -9: make axes longer.

    The place of an element of the result is its position divided by the scale, both float32.
    `nearest` takes the element before this place; `linear` interpolates between that and the next
    one, if there is one. The text says no more; onnxruntime 1.32 does the same.

    Each size is multiplied by its scale, in float32, and rounded down. Integers are truncated.
    Version 1 calls `linear` `bilinear`.

    Raises:
        KernelError: If there is not one scale for each axis, one is below 1, or `mode` is another
            one or not for elements of this type.
    """
    if np.ndim(scales) != 1:
        raise KernelError(f"`scales` has shape {np.shape(scales)}, expected one dimension")
    factors = np.asarray(scales).tolist()
    if mode not in ("nearest", "linear", "bilinear"):
        raise KernelError(f"`mode` is `{mode}`, expected `nearest` or `linear`")
    if mode != "nearest" and X.dtype.kind in "bO":
        raise KernelError(f"`mode` is `{mode}`, expected `nearest` for elements of {X.dtype}")
    if len(factors) != X.ndim:
        raise KernelError(f"`scales` has {len(factors)} elements, expected {X.ndim}, one per axis")
    for axis, scale in enumerate(factors):
        if not 1 <= scale < np.inf:
            raise KernelError(f"`scales[{axis}]` is {scale}, expected 1 or more")
    products = [_SINGLE(n) * _SINGLE(s) for n, s in zip(X.shape, factors, strict=True)]
    sizes = [int(min(product, _SINGLE(2**63))) for product in products]
    require_room(sizes, X.dtype)
    given, numbers = X.dtype, widened(X)
    if mode != "nearest" and given.kind in "iu":
        numbers = X.astype(np.float64 if given.itemsize > 4 else _SINGLE)
    for axis, (size, scale) in enumerate(zip(sizes, factors, strict=True)):
        if scale == 1:
            continue
        place = np.arange(size, dtype=_SINGLE) / _SINGLE(scale)
        before = np.minimum(place.astype(np.int64), numbers.shape[axis] - 1)
        near = np.take(numbers, before, axis)
        if mode != "nearest":
            after = np.minimum(before + 1, numbers.shape[axis] - 1)
            between = (place - before.astype(_SINGLE)).reshape(-1, *[1] * (X.ndim - 1 - axis))
            mixed = near * (1 - between) + np.take(numbers, after, axis) * between
            near = np.where(between == 0, near, mixed).astype(near.dtype, copy=False)
        numbers = near
    return narrowed(numbers, given)


def affine_grid_20(theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """Compute AffineGrid-20: the place of each point of an image in another image.

    Points are multiplied in float64 and rounded to the type of `theta`. The only point along an
    axis of size 1, which the text does not place with `align_corners`, is at -1, as in
    onnx.reference 1.23; onnxruntime 1.32 puts it at 0.

    `theta` is (N, 2, 3), or (N, 3, 4) for three axes; `size` is N, C and the sizes. The result is
    (N, sizes..., 2 or 3), the last axis of the picture first. With `align_corners`, -1 and 1 are
    the middles of the outermost points, not their edges.

    Raises:
        KernelError: If the shapes do not fit each other, or a size is negative.
    """
    kept = [n for axis, n in enumerate(read_integers(size, "size")) if axis != 1]
    if len(kept) not in (3, 4) or min(kept) < 0:
        raise KernelError(f"`size` is {size.tolist()}, expected four or five sizes of 0 or more")
    batch, *sizes = kept
    rank = len(sizes)
    if theta.shape != (batch, rank, rank + 1):
        expected = (batch, rank, rank + 1)
        raise KernelError(f"`theta` has shape {theta.shape}, expected {expected} as `size` says")
    require_room((batch, *sizes, rank), np.dtype(np.float64))
    along = [
        np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / max(n, 1) - 1
        for n in sizes
    ]
    places = [*reversed(np.meshgrid(*along, indexing="ij")), np.ones(sizes)]
    points = np.stack([place.reshape(-1) for place in places], axis=-1)
    found = points @ theta.astype(np.float64).transpose(0, 2, 1)
    return narrowed(found.reshape(batch, *sizes, rank), theta.dtype)


LINES: Lines = {
    "AffineGrid": {20: affine_grid_20},
    "AveragePool": {1: average_pool},
    "Conv": {1: conv},
    "ConvTranspose": {1: functools.partial(conv_transpose, is_before_11=True), 11: conv_transpose},
    "GlobalLpPool": {1: global_lp_pool},
    "GlobalMaxPool": {1: global_max_pool},
    "LpPool": {1: lp_pool},
    "MaxPool": {1: max_pool},
    "Upsample": {1: upsample_1, 7: upsample_7},
}
"""Operators of this module with their kernels, oldest first."""
