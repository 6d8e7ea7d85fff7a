"""Activations, element by element."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.elementwise.unary import apply, erf
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines, Value
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_broadcasts

_Consumed = Ints | None

# How every activation is computed: in float32 or float64, and rounded once.


def sigmoid_of(x: Reals) -> Reals:
    """Return 1 / (1 + exp(-x)); no exponential overflows on the way."""
    return np.asarray(np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))))


# Activations with an exponential below zero: Elu, Selu and Celu.


def elu_1(X: Array, *, alpha: float, consumed_inputs: _Consumed = None) -> Array:
    """Return alpha * (exp(x) - 1) for x < 0, else x. `consumed_inputs` has no meaning."""
    return apply(lambda x: np.where(x < 0, alpha * np.expm1(x), x), X)


def selu_1(X: Array, *, alpha: float, gamma: float, consumed_inputs: _Consumed = None) -> Array:
    """Return gamma * alpha * (exp(x) - 1) for x <= 0, else gamma * x.

    The defaults of version 1 have fewer digits than those of 6. `consumed_inputs` has no meaning.
    """
    return apply(lambda x: gamma * np.where(x <= 0, alpha * np.expm1(x), x), X)


def celu_12(X: Array, *, alpha: float) -> Array:
    """Return max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    Raises:
        KernelError: If `alpha` is 0: the formula divides by it.
    """
    if alpha == 0:
        raise KernelError("`alpha` is 0, and x is divided by it")
    return apply(lambda x: np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0), X)


# Activations of straight pieces: HardSigmoid, HardSwish and Shrink.


def hard_sigmoid_1(
    X: Array, *, alpha: float, beta: float, consumed_inputs: _Consumed = None
) -> Array:
    """Return max(0, min(1, alpha * x + beta)). `consumed_inputs` has no meaning."""
    return apply(lambda x: np.clip(alpha * x + beta, 0, 1), X)


def hard_swish_14(X: Array) -> Array:
    """Return x * max(0, min(1, x / 6 + 0.5)); minus infinity makes NaN."""
    return apply(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), X)


def shrink_9(input: Array, *, bias: float, lambd: float) -> Array:
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
    if bias.is_integer():
        step = np.asarray(int(bias)).astype(x.dtype)
        up, down = np.add(x, step), np.subtract(x, step)
    else:
        wide = x.astype(np.float64)
        up, down = (wide + bias).astype(x.dtype), (wide - bias).astype(x.dtype)
    return np.where(low, up, np.where(high, down, np.zeros((), x.dtype)))


# Activations that keep positive numbers: Relu and its kin.


def relu_1(X: Array, *, consumed_inputs: _Consumed = None) -> Value:
    """Return max(0, x), for integers too; NaN stays NaN. `consumed_inputs` has no meaning."""
    return np.maximum(X, np.zeros((), X.dtype))


def leaky_relu_1(X: Array, *, alpha: float, consumed_inputs: _Consumed = None) -> Array:
    """Return alpha * x for x < 0, else x. `consumed_inputs` has no meaning."""
    return apply(lambda x: np.where(x < 0, alpha * x, x), X)


def p_relu_1(X: Array, slope: Array, *, consumed_inputs: _Consumed = None) -> Array:
    """Compute PRelu-1 and -6: one slope, or one for each channel. `consumed_inputs` has no meaning.

    Raises:
        KernelError: If `slope` has another number of elements.
    """
    channels = X.shape[1] if X.ndim > 1 else 1
    if slope.size == 1:
        return p_relu_7(X, slope.reshape(()))
    if slope.shape != (channels,):
        raise KernelError(
            f"`slope` has shape {slope.shape}, expected one element or ({channels},): the channels "
            f"of `X` with shape {X.shape}"
        )
    return p_relu_7(X, slope.reshape(-1, *(1,) * (X.ndim - 2)))


def p_relu_7(X: Array, slope: Array) -> Array:
    """Compute PRelu from version 7 on: slope * x for x < 0, else x.

    Integers, from version 9 on, wrap around where the product overflows, as numpy's.

    Raises:
        KernelError: If `slope` does not broadcast to `X`.
    """
    check_broadcasts("slope", slope.shape, "X", X.shape)
    return apply(lambda x: np.where(x < 0, widened(slope) * x, x), X)


def thresholded_relu_10(X: Array, *, alpha: float) -> Array:
    """Return x for x > alpha, else 0, which is what NaN gives."""
    return apply(lambda x: np.where(x > alpha, x, 0), X)


# Activations by a smooth gate or limit: Sigmoid, Softplus, Gelu, Swish and their kin.
#
# Limits are those of the formula as it stands, as the function bodies of the schemas compute it:
# minus infinity makes NaN of Gelu, Mish, Swish and HardSwish (infinity times 0), and either
# infinity makes NaN of Softsign.


def sigmoid_1(X: Array, *, consumed_inputs: _Consumed = None) -> Array:
    """Return 1 / (1 + exp(-x)). `consumed_inputs` has no meaning."""
    return apply(sigmoid_of, X)


def softplus_1(X: Array) -> Array:
    """Return ln(exp(x) + 1), which does not overflow."""
    return apply(_softplus, X)


def softsign_1(input: Array) -> Array:
    """Return x / (1 + |x|)."""
    return apply(lambda x: x / (1 + np.abs(x)), input)


def mish_18(X: Array) -> Array:
    """Return x * tanh(ln(1 + exp(x)))."""
    return apply(lambda x: x * np.tanh(_softplus(x)), X)


def gelu_20(X: Array, *, approximate: str) -> Array:
    """Return x times the normal distribution function of x.

    `approximate` is `none` for 0.5 * x * (1 + erf(x / sqrt(2))), in float64 for all types, or
    `tanh` for 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

    Raises:
        KernelError: If `approximate` is another string.
    """
    if approximate == "none":
        return apply(gelu_of, X)
    if approximate == "tanh":
        return apply(gelu_tanh_of, X)
    raise KernelError(f"`approximate` is `{approximate}`, expected `none` or `tanh`")


def swish_24(X: Array, *, alpha: float) -> Array:
    """Return x * sigmoid(alpha * x)."""
    return apply(lambda x: x * sigmoid_of(alpha * x), X)


def swi_glu_28(A: Array, B: Array, *, alpha: float) -> Array:
    """Return a * sigmoid(alpha * a) * b, rounded once.

    Raises:
        KernelError: If the shapes differ.
    """
    if A.shape != B.shape:
        raise KernelError(f"`B` has shape {B.shape}, expected {A.shape} as `A`")
    return apply(lambda a: a * sigmoid_of(alpha * a) * widened(B), A)


def _softplus(x: Reals) -> Reals:
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


def gelu_of(x: Reals) -> Reals:
    """Return 0.5 * x * (1 + erf(x / sqrt(2))) in float64."""
    wide = x.astype(np.float64, copy=False)
    sigmoid = erf(wide / math.sqrt(2))
    return np.asarray(0.5 * wide * (1 + sigmoid))


def gelu_tanh_of(x: Reals) -> Reals:
    """Return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


LINES: Lines = {
    "Celu": {12: celu_12},
    "Elu": {1: elu_1},
    "Gelu": {20: gelu_20},
    "HardSigmoid": {1: hard_sigmoid_1},
    "HardSwish": {14: hard_swish_14},
    "LeakyRelu": {1: leaky_relu_1},
    "Mish": {18: mish_18},
    "PRelu": {1: p_relu_1, 7: p_relu_7},
    "Relu": {1: relu_1},
    "Selu": {1: selu_1},
    "Shrink": {9: shrink_9},
    "Sigmoid": {1: sigmoid_1},
    "Softplus": {1: softplus_1},
    "Softsign": {1: softsign_1},
    "SwiGLU": {28: swi_glu_28},
    "Swish": {24: swish_24},
    "ThresholdedRelu": {10: thresholded_relu_10},
}
"""Operators of this module with their kernels, oldest first."""
