"""Activations with an exponential below zero: Elu, Selu and Celu."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation.apply import apply
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["celu_12", "elu_1", "selu_1"]


def elu_1(
    X: Array, *, alpha: float, consumed_inputs: tuple[int, ...] | None = None
) -> tuple[Array]:
    """Return alpha * (exp(x) - 1) for x < 0, else x. `consumed_inputs` has no meaning."""
    return apply(lambda x: np.where(x < 0, alpha * np.expm1(x), x), X)


def selu_1(
    X: Array, *, alpha: float, gamma: float, consumed_inputs: tuple[int, ...] | None = None
) -> tuple[Array]:
    """Return gamma * alpha * (exp(x) - 1) for x <= 0, else gamma * x.

    The defaults of version 1 have fewer digits than those of 6. `consumed_inputs` has no meaning.
    """
    return apply(lambda x: gamma * np.where(x <= 0, alpha * np.expm1(x), x), X)


def celu_12(X: Array, *, alpha: float) -> tuple[Array]:
    """Return max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    Raises:
        KernelError: If `alpha` is 0, by which the formula divides.
    """
    if alpha == 0:
        raise KernelError("`alpha` is 0, by which x is divided")
    return apply(lambda x: np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0), X)
