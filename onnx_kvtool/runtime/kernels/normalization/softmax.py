"""Softmax, LogSoftmax and Hardmax: one axis since version 13, all trailing axes before."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals

_Formula = Callable[[Reals, int], Reals]


def softmax_1(input: Array, *, axis: int) -> tuple[Array]:
    """Compute Softmax-1 and -11: over `axis` and all axes behind it; see `softmax_13`."""
    return _over_trailing(_softmax, input, axis)


def softmax_13(input: Array, *, axis: int) -> tuple[Array]:
    """Compute exp(x) / sum(exp(x)) over one axis, shifted by the maximum.

    16-bit types are computed in float32 and rounded once. A row of nothing but minus infinity, or
    with plus infinity or NaN, is NaN throughout.

    Args:
        input: Any shape of rank 1 or more; an axis of length 0 gives an empty result.
        axis: Counted from the back if negative (in version 1 as well, whose text is silent).

    Raises:
        KernelError: If `axis` is outside the rank.
    """
    return _over_one(_softmax, input, axis)


def log_softmax_1(input: Array, *, axis: int) -> tuple[Array]:
    """Compute LogSoftmax-1 and -11: over `axis` and all axes behind it; see `softmax_13`."""
    return _over_trailing(_log_softmax, input, axis)


def log_softmax_13(input: Array, *, axis: int) -> tuple[Array]:
    """Compute x - log(sum(exp(x))) over one axis; see `softmax_13`."""
    return _over_one(_log_softmax, input, axis)


def hardmax_1(input: Array, *, axis: int) -> tuple[Array]:
    """Compute Hardmax-1 and -11: over `axis` and all axes behind it; see `hardmax_13`."""
    return _over_trailing(_hardmax, input, axis)


def hardmax_13(input: Array, *, axis: int) -> tuple[Array]:
    """Return 1 for the first maximum along an axis, 0 elsewhere; NaN counts as the maximum.

    Raises:
        KernelError: If `axis` is outside the rank.
    """
    return _over_one(_hardmax, input, axis)


def _over_one(formula: _Formula, x: Array, axis: int) -> tuple[Array]:
    front = count_axis(axis, x.ndim, of="input")
    if x.size == 0:
        return (x.copy(),)
    return (formula(widened(x), front).astype(x.dtype, copy=False),)


def _over_trailing(formula: _Formula, x: Array, axis: int) -> tuple[Array]:
    front = count_axis(axis, x.ndim, of="input")
    rows = math.prod(x.shape[:front])
    flat = x.reshape(rows, math.prod(x.shape[front:]))
    (result,) = _over_one(formula, flat, 1)
    return (result.reshape(x.shape),)


def _softmax(x: Reals, axis: int) -> Reals:
    shifted: Reals = x - x.max(axis=axis, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=axis, keepdims=True)
    return shifted


def _log_softmax(x: Reals, axis: int) -> Reals:
    shifted: Reals = x - x.max(axis=axis, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


def _hardmax(x: Reals, axis: int) -> Reals:
    result = np.zeros_like(x)
    np.put_along_axis(result, x.argmax(axis=axis, keepdims=True), 1, axis=axis)
    return result
