"""How every activation is computed: in float32 or float64, and rounded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.precision import Reals

__all__ = ["apply", "sigmoid_of"]


def apply(formula: Callable[[Reals], Reals], x: Array) -> tuple[Array]:
    """Return a formula of each element, rounded once to the type of `x`.

    Overflow and invalid operations inside the formula make infinity and NaN without a warning.

    Args:
        formula: Element by element, on float64 for a double and float32 for all other types.
        x: Of any shape.
    """
    with np.errstate(all="ignore"):
        return (np.asarray(formula(widened(x))).astype(x.dtype, copy=False),)


def sigmoid_of(x: Reals) -> Reals:
    """Return 1 / (1 + exp(-x)); no exponential overflows on the way."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))
