"""Activations by a smooth gate or limit: Sigmoid, Softplus, Gelu, Swish and their kin.

Limits are those of the formula as it stands, as the function bodies of the schemas compute it:
minus infinity makes NaN of Gelu, Mish, Swish and HardSwish (infinity times 0), and either infinity
makes NaN of Softsign.
"""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation.apply import apply, sigmoid_of
from onnx_kvtool.runtime.kernels.elementwise.erf import erf
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.precision import Reals

__all__ = [
    "gelu_20",
    "gelu_of",
    "gelu_tanh_of",
    "mish_18",
    "sigmoid_1",
    "softplus_1",
    "softsign_1",
    "swi_glu_28",
    "swish_24",
]


def sigmoid_1(X: Array, *, consumed_inputs: tuple[int, ...] | None = None) -> tuple[Array]:
    """Return 1 / (1 + exp(-x)). `consumed_inputs` has no meaning."""
    return apply(sigmoid_of, X)


def softplus_1(X: Array) -> tuple[Array]:
    """Return ln(exp(x) + 1), which does not overflow."""
    return apply(_softplus, X)


def softsign_1(input: Array) -> tuple[Array]:
    """Return x / (1 + |x|)."""
    return apply(lambda x: x / (1 + np.abs(x)), input)


def mish_18(X: Array) -> tuple[Array]:
    """Return x * tanh(ln(1 + exp(x)))."""
    return apply(lambda x: x * np.tanh(_softplus(x)), X)


def gelu_20(X: Array, *, approximate: str) -> tuple[Array]:
    """Return x times the normal distribution function of x.

    Args:
        X: Any shape.
        approximate: `none` for 0.5 * x * (1 + erf(x / sqrt(2))), in float64 for all types; `tanh`
            for 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

    Raises:
        KernelError: If `approximate` is another string.
    """
    if approximate == "none":
        return apply(gelu_of, X)
    if approximate == "tanh":
        return apply(gelu_tanh_of, X)
    raise KernelError(f"`approximate` is `{approximate}`, expected `none` or `tanh`")


def swish_24(X: Array, *, alpha: float) -> tuple[Array]:
    """Return x * sigmoid(alpha * x)."""
    return apply(lambda x: x * sigmoid_of(alpha * x), X)


def swi_glu_28(A: Array, B: Array, *, alpha: float) -> tuple[Array]:
    """Return a * sigmoid(alpha * a) * b, rounded once.

    Args:
        A: Any shape.
        B: Of the shape of `A`; nothing is broadcast.
        alpha: Factor inside the sigmoid.

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
    wide: Reals = x.astype(np.float64, copy=False)
    sigmoid: Reals = erf(wide / math.sqrt(2))
    return np.asarray(0.5 * wide * (1 + sigmoid))


def gelu_tanh_of(x: Reals) -> Reals:
    """Return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))
