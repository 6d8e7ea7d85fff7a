"""Softmax, LogSoftmax and Hardmax: one axis since version 13, all trailing axes before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, KernelFunction, Lines
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


def forms_of_softmax(formula: Callable[[Array, int], Array]) -> Mapping[int, KernelFunction]:
    """Return kernels of one axis, from version 13 on, and of all axes from one on, before it.

    An axis of length 0 gives an empty result. Negative axes, on which version 1 is silent, count
    from the back. Both raise KernelError for an axis outside the rank.
    """

    def over_one(input: Array, *, axis: int) -> tuple[Array]:
        front = count_axis(axis, input.ndim, of="input")
        if input.size == 0:
            return (input.copy(),)
        return (narrowed(formula(widened(input), front), input.dtype),)

    def over_trailing(input: Array, *, axis: int) -> tuple[Array]:
        front = count_axis(axis, input.ndim, of="input")
        rows = math.prod(input.shape[:front])
        flat = input.reshape(rows, math.prod(input.shape[front:]))
        (result,) = over_one(flat, axis=1)
        return (result.reshape(input.shape),)

    return {1: over_trailing, 13: over_one}


LINES: Lines = {
    "Hardmax": forms_of_softmax(hardmax),
    "LogSoftmax": forms_of_softmax(log_softmax),
    "Softmax": forms_of_softmax(softmax),
}
"""Operators of this module with their kernels, oldest first."""
