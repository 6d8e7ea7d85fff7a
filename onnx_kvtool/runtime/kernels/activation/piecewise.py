"""Activations of straight pieces: HardSigmoid, HardSwish and Shrink."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation.apply import apply
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["hard_sigmoid_1", "hard_swish_14", "shrink_9"]


def hard_sigmoid_1(
    X: Array, *, alpha: float, beta: float, consumed_inputs: tuple[int, ...] | None = None
) -> tuple[Array]:
    """Return max(0, min(1, alpha * x + beta)). `consumed_inputs` has no meaning."""
    return apply(lambda x: np.clip(alpha * x + beta, 0, 1), X)


def hard_swish_14(X: Array) -> tuple[Array]:
    """Return x * max(0, min(1, x / 6 + 0.5)); minus infinity makes NaN."""
    return apply(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), X)


def shrink_9(input: Array, *, bias: float, lambd: float) -> tuple[Array]:
    """Return x + bias for x < -lambd, x - bias for x > lambd, else 0.

    Integers are compared exactly. With a bias that is an integer the sum is exact and wraps around,
    as numpy's; with another it is computed in float64 and truncated.

    Raises:
        KernelError: If `bias` or `lambd` is infinite or NaN and the input of integers.
    """
    if input.dtype.kind not in "iu":
        return apply(
            lambda x: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)), input
        )
    for name, number in (("bias", bias), ("lambd", lambd)):
        if not math.isfinite(number):
            raise KernelError(f"`{name}` is {number}, expected a finite number for integers")
    x = np.asarray(input)
    low, high = np.less(x, math.ceil(-lambd)), np.greater(x, math.floor(lambd))
    with np.errstate(all="ignore"):
        if bias.is_integer():
            step = np.asarray(int(bias)).astype(x.dtype)
            up, down = np.add(x, step), np.subtract(x, step)
        else:
            wide = x.astype(np.float64)
            up, down = (wide + bias).astype(x.dtype), (wide - bias).astype(x.dtype)
    return (np.where(low, up, np.where(high, down, np.zeros((), x.dtype))),)
