"""Softmax, LogSoftmax and Hardmax: one axis since version 13, all trailing axes before."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.normalization.layer import Reals


def softmax(x: Reals, axis: int) -> Reals:
    """Compute exp(x) / sum(exp(x)) over one axis, shifted by the maximum.

    16-bit types are computed in float32 and rounded once. A row of nothing but minus infinity, or
    with plus infinity or NaN, is NaN throughout.
    """
    shifted: Reals = x - x.max(axis=axis, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=axis, keepdims=True)
    return shifted


def log_softmax(x: Reals, axis: int) -> Reals:
    """Compute x - log(sum(exp(x))) over one axis, as `softmax` otherwise."""
    shifted: Reals = x - x.max(axis=axis, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


def hardmax(x: Reals, axis: int) -> Reals:
    """Return 1 for the first maximum along an axis, 0 elsewhere; NaN counts as the maximum."""
    result = np.zeros_like(x)
    np.put_along_axis(result, x.argmax(axis=axis, keepdims=True), 1, axis=axis)
    return result
