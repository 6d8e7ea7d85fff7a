"""Operators into which onnxruntime's optimiser has drawn their neighbours, of `com.microsoft`.

16-bit types are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import (
    apply,
    elu_1,
    gelu_of,
    gelu_tanh_of,
    hard_sigmoid_1,
    leaky_relu_1,
    relu_1,
    selu_1,
    sigmoid_1,
    softplus_1,
    softsign_1,
    thresholded_relu_10,
)
from onnx_kvtool.runtime.kernels.contrib.fused_mat_mul import fused_mat_mul
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.elementwise.unary import dropout_12
from onnx_kvtool.runtime.kernels.kernel import Array, Context, KernelFunction
from onnx_kvtool.runtime.kernels.linear import gemm_7
from onnx_kvtool.runtime.kernels.normalization.layer import Reals
from onnx_kvtool.runtime.kernels.normalization.softmax import softmax_1
from onnx_kvtool.runtime.kernels.windows import Sliding, convolved

__all__ = [
    "bias_dropout",
    "bias_softmax",
    "bias_split_gelu",
    "fused_conv",
    "fused_gemm",
    "fused_mat_mul_activation",
    "gemm_fast_gelu",
]

_Ints = tuple[int, ...] | None


def _tanh(X: Array) -> tuple[Array]:
    return apply(np.tanh, X)


_ACTIVATIONS: Mapping[str, tuple[KernelFunction, Mapping[str, float]]] = {
    "Elu": (elu_1, {"alpha": 1.0}),
    "HardSigmoid": (hard_sigmoid_1, {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": (leaky_relu_1, {"alpha": 0.01}),
    "Relu": (relu_1, {}),
    "Selu": (selu_1, {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Sigmoid": (sigmoid_1, {}),
    "Softplus": (softplus_1, {}),
    "Softsign": (softsign_1, {}),
    "Tanh": (_tanh, {}),
    "ThresholdedRelu": (thresholded_relu_10, {"alpha": 1.0}),
}
"""What may be drawn in, with the defaults of its attributes in the order of `activation_params`."""


def fused_gemm(
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    activation: str | None,
    activation_alpha: float | None,
    activation_beta: float | None,
    activation_gamma: float | None,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> tuple[Array]:
    """Return the activation of `gemm_7`; one that has no number given has its default.

    Raises:
        KernelError: For another activation, and where `gemm_7` does.
    """
    (y,) = gemm_7(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return (_activated(y, activation, {n: v for n, v in given.items() if v is not None}),)


def fused_mat_mul_activation(
    A: Array,
    B: Array,
    *,
    activation: str,
    activation_alpha: float | None,
    activation_axis: int | None,
    activation_beta: float | None,
    activation_gamma: float | None,
    alpha: float,
    transA: int,
    transB: int,
    transBatchA: int,
    transBatchB: int,
) -> tuple[Array]:
    """Return the activation of `fused_mat_mul`, as `fused_gemm` has it.

    Raises:
        KernelError: For another activation, one along an axis, and where `fused_mat_mul` does.
    """
    refuse_value("activation_axis", activation_axis, None)
    (y,) = fused_mat_mul(
        A,
        B,
        alpha=alpha,
        transA=transA,
        transB=transB,
        transBatchA=transBatchA,
        transBatchB=transBatchB,
    )
    given = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return (_activated(y, activation, {n: v for n, v in given.items() if v is not None}),)


def fused_conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    *,
    activation: str | None,
    activation_params: tuple[float, ...] | None,
    auto_pad: str,
    dilations: _Ints,
    group: int,
    kernel_shape: _Ints,
    pads: _Ints,
    strides: _Ints,
) -> tuple[Array]:
    """Return the activation of a convolution to which `Z` is added.

    Args:
        X: (N, C, ...).
        W: (M, C / group, kernel...).
        B: (M,); None for zero.
        Z: Of the shape of the result; None for zero.
        activation: One of `_ACTIVATIONS`, or Clip; None and empty for none.
        activation_params: Its numbers, in order.
        auto_pad: See `Sliding`, as the rest.
        dilations: For each axis.
        group: Groups of channels.
        kernel_shape: That of `W`; not looked at.
        pads: For each axis.
        strides: For each axis.

    Raises:
        KernelError: For another activation, or shapes that do not fit.
    """
    sliding = Sliding(auto_pad, dilations, pads, strides)
    y = convolved(widened(X), widened(W), sliding, group)
    if B is not None:
        y = y + widened(B).reshape(1, -1, *[1] * (X.ndim - 2))
    if Z is not None:
        y = y + widened(Z)
    numbers = activation_params or ()
    if activation == "Clip":
        if len(numbers) != 2:
            raise KernelError(f"`activation_params` of Clip has {len(numbers)} numbers, expected 2")
        return (narrowed(np.clip(y, *numbers), X.dtype),)
    names = _ACTIVATIONS.get(activation or "", (None, {}))[1]
    given = dict(zip(names, numbers, strict=False))
    return (narrowed(widened(_activated(y, activation, given)), X.dtype),)


def _activated(x: Array, activation: str | None, numbers: Mapping[str, float]) -> Array:
    if not activation:
        return x
    if activation not in _ACTIVATIONS:
        known = ", ".join(f"`{name}`" for name in _ACTIVATIONS)
        raise KernelError(f"`activation` is `{activation}`, expected one of {known}")
    function, defaults = _ACTIVATIONS[activation]
    (y,) = function(x, **{name: numbers.get(name, value) for name, value in defaults.items()})
    assert isinstance(y, np.ndarray)
    return y


def gemm_fast_gelu(X: Array, W: Array, bias: Array | None = None) -> tuple[Array]:
    """Return Gelu by tanh of a product and a bias, as `fast_gelu` has it."""
    with np.errstate(all="ignore"):
        total: Reals = np.asarray(np.matmul(widened(X), widened(W)))
        total = total if bias is None else total + widened(bias)
        return (narrowed(gelu_tanh_of(total), X.dtype),)


def bias_softmax(data: Array, bias: Array, *, axis: int, is_inner_broadcast: int) -> tuple[Array]:
    """Return the softmax over all axes from `axis` on of data and a bias that broadcasts to it.

    onnxruntime has it on GPUs alone; there `is_inner_broadcast` says which axes of the bias are 1.
    """
    with np.errstate(all="ignore"):
        total = narrowed(np.asarray(widened(data) + widened(bias)), data.dtype)
    return softmax_1(total, axis=axis)


def bias_split_gelu(X: Array, bias: Array) -> tuple[Array]:
    """Return the first half of the last axis of a sum times Gelu of the second, as documented."""
    total = widened(X) + widened(bias)
    if total.shape[-1] % 2:
        raise KernelError(f"`X` has shape {X.shape}, expected an even last dimension")
    left, right = np.split(total, 2, axis=-1)
    return (narrowed(np.asarray(left * gelu_of(right)), X.dtype),)


def bias_dropout(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None,
    context: Context,
) -> tuple[Array, Array]:
    """Return `dropout_12` of a sum, to which a residual is added, and its mask."""
    total = narrowed(np.asarray(widened(data) + widened(bias)), data.dtype)
    y, mask = dropout_12(total, ratio, training_mode, seed=seed, context=context)
    if residual is not None:
        y = narrowed(np.asarray(widened(y) + widened(residual)), data.dtype)
    return y, mask
