"""ConvTransposeWithDynamicPads, with the groups that onnx.reference cannot compute."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array

_Ints = Sequence[int] | None


def conv_transpose_with_dynamic_pads(
    X: Array,
    W: Array,
    Pads: Array | None = None,
    B: Array | None = None,
    *,
    auto_pad: str,
    dilations: _Ints,
    group: int,
    kernel_shape: _Ints,
    output_padding: _Ints,
    strides: _Ints,
) -> tuple[Array]:
    """Add each element of the data, times the filters, to the places around it.

    Args:
        X: (N, C, ...).
        W: The filters: (C, M / group, ...).
        Pads: Elements that are cut off before all axes, and after: (2 k,), int64, not negative.
        B: (M,); None for zero.
        auto_pad: NOTSET.
        dilations: Gaps between elements of a filter; None for 1.
        group: Groups of channels.
        kernel_shape: That of the filters, or None.
        output_padding: Elements added after each axis; None for 0.
        strides: Distance of the places of two elements; None for 1.

    Raises:
        KernelError: If the shapes do not fit; without pads.
    """
    refuse_value("auto_pad", auto_pad, "NOTSET")
    rank = X.ndim - 2
    ones = (1,) * rank
    if rank < 1 or W.ndim != X.ndim or len(W) != X.shape[1] or group < 1 or len(W) % group:
        raise KernelError(f"`X` and `W` have shapes {X.shape} and {W.shape}, {group} groups")
    bounds = [] if Pads is None else [int(pad) for pad in Pads.reshape(-1)]
    if len(bounds) != 2 * rank or min(bounds) < 0:
        raise KernelError(f"`Pads` is {Pads}, expected {2 * rank} numbers, none of them negative")
    refuse_value("kernel_shape", kernel_shape, None, W.shape[2:])
    steps, gaps = strides or ones, dilations or ones
    more = output_padding or (0,) * rank
    sizes = [
        (size - 1) * step + (k - 1) * gap + 1 + extra
        for size, step, k, gap, extra in zip(
            X.shape[2:], steps, W.shape[2:], gaps, more, strict=True
        )
    ]
    x, w = widened(X), widened(W)
    parts = []
    for data, filters in zip(np.split(x, group, 1), np.split(w, group, 0), strict=True):
        y = np.zeros((len(X), W.shape[1], *sizes), x.dtype)
        for place in itertools.product(*map(range, W.shape[2:])):
            touched = [
                slice(at * gap, at * gap + (size - 1) * step + 1, step)
                for at, gap, size, step in zip(place, gaps, X.shape[2:], steps, strict=True)
            ]
            factor = np.moveaxis(filters, (0, 1), (-2, -1))[place]
            y[(slice(None), slice(None), *touched)] += np.einsum("nc...,cm->nm...", data, factor)
        parts.append(y)
    y = np.concatenate(parts, axis=1)
    cut = (
        slice(front, size - behind)
        for front, behind, size in zip(bounds[:rank], bounds[rank:], sizes, strict=True)
    )
    y = y[(slice(None), slice(None), *cut)]
    if 0 in y.shape[2:]:
        raise KernelError(f"`Pads` {bounds} leave nothing of {sizes}")
    return (narrowed(y if B is None else y + widened(B).reshape(-1, *ones), X.dtype),)
