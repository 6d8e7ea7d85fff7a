"""Gates of recent decoders: GatedAdd, GatedRMSNorm, ScaledSiLU and SwiGLU of `com.microsoft`.

Semantics are those of the text that onnxruntime 1.32.0 registers, and of its kernels for CPUs.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = ["gated_add", "gated_rms_norm", "scaled_si_lu", "swi_glu", "swiglu_of"]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def gated_add(X: Array, Y: Array, gate: Array, gate_weight: Array | None = None) -> tuple[Array]:
    """Return X + Y * gate, the product rounded to the type of `X`.

    Args:
        X: (..., C).
        Y: Of the shape of `X`.
        gate: (..., 1); with `gate_weight` (..., K).
        gate_weight: (K, 1), for bfloat16 alone: the gate is the sigmoid of the product of both,
            which is rounded before and after.

    Returns:
        One array of the shape and type of `X`.

    Raises:
        KernelError: For another shape, and a weight beside another type.
    """
    check_shape("Y", Y.shape, X.shape, "that of `X`")
    width = 1 if gate_weight is None else len(gate_weight)
    check_shape("gate", gate.shape, (*X.shape[:-1], width), "one row for each of `X`")
    with np.errstate(all="ignore"):
        factor = widened(gate)
        if gate_weight is not None:
            if X.dtype != _BFLOAT16:
                raise KernelError(
                    f"`gate_weight` is given beside {X.dtype.name}, which onnxruntime has for "
                    "bfloat16 alone"
                )
            check_shape("gate_weight", gate_weight.shape, (width, 1), "one for each of the gate")
            total = np.einsum("...k,ko->...o", factor, widened(gate_weight))
            chance = sigmoid_of(widened(narrowed(total, X.dtype)))
            factor = widened(narrowed(chance, X.dtype))
        product = widened(narrowed(np.asarray(widened(Y) * factor), X.dtype))
        return (narrowed(np.asarray(widened(X) + product), X.dtype),)


def gated_rms_norm(
    X: Array, scale: Array, gate: Array, *, activation: str, epsilon: float
) -> tuple[Array]:
    """Divide groups by the root of their mean square, scale them, and multiply with a gate.

    Everything is computed in float32 and rounded once.

    Args:
        X: (..., groups * C).
        scale: (C,).
        gate: Of the shape of `X`.
        activation: Of the gate: silu, its other name swish, or sigmoid.
        epsilon: Added to the mean square.

    Returns:
        One array of the shape and type of `X`.

    Raises:
        KernelError: For another shape or activation.
    """
    refuse_value("activation", activation, "silu", "swish", "sigmoid")
    check_shape("gate", gate.shape, X.shape, "that of `X`")
    if scale.ndim != 1 or not len(scale) or X.ndim < 1 or X.shape[-1] % len(scale):
        raise KernelError(
            f"`scale` has shape {scale.shape}, expected one dimension that divides the last of "
            f"`X` with shape {X.shape}"
        )
    with np.errstate(all="ignore"):
        rows = widened(X).reshape(-1, len(scale))
        means = np.einsum("rc,rc->r", rows, rows)[:, None] / np.float32(len(scale))
        rows = rows / np.sqrt(means + np.float32(epsilon)) * widened(scale)
        z = widened(gate)
        factor = sigmoid_of(z) if activation == "sigmoid" else z * sigmoid_of(z)
        return (narrowed(np.asarray(rows.reshape(X.shape) * factor), X.dtype),)


def scaled_si_lu(X: Array, scale: Array | None = None, *, alpha: float) -> tuple[Array]:
    """Return z * sigmoid(z) of z = scale * X, each rounded to the type of `X`.

    Args:
        X: Of any shape.
        scale: (); None for `alpha`.
        alpha: The factor where there is no `scale`.

    Raises:
        KernelError: If `scale` is no scalar.
    """
    factor = np.float32(alpha)
    if scale is not None:
        check_shape("scale", scale.shape, (), "a scalar")
        factor = np.float32(widened(scale))
    with np.errstate(all="ignore"):
        z = widened(narrowed(np.asarray(widened(X) * factor), X.dtype))
        chance = widened(narrowed(sigmoid_of(z), X.dtype))
        return (narrowed(np.asarray(z * chance), X.dtype),)


def swi_glu(
    gate: Array,
    up: Array | None = None,
    *,
    activation_alpha: float,
    activation_beta: float,
    limit: float,
    round_activation: int,
) -> tuple[Array]:
    """Return gate * sigmoid(alpha * gate) * (up + beta), both clamped, as `swiglu_of` does.

    Args:
        gate: (..., I); without `up` (..., 2 * I), of which the second half is it.
        up: Of the shape of `gate`.
        activation_alpha: Factor in the sigmoid.
        activation_beta: Added to `up`.
        limit: Bound of both, of the gate from above alone; 0 and less for none.
        round_activation: Whether the activation is rounded before the last product.

    Returns:
        (..., I), of the type of `gate`.

    Raises:
        KernelError: For another shape.
    """
    if up is None:
        if gate.ndim < 1 or gate.shape[-1] % 2:
            raise KernelError(f"`gate` has shape {gate.shape}, expected an even last dimension")
        gate, up = np.split(gate, 2, axis=-1)
    check_shape("up", up.shape, gate.shape, "that of `gate`")
    bound = limit if limit > 0 else np.inf
    dtype = gate.dtype if round_activation else None
    found = swiglu_of(widened(gate), widened(up), (activation_alpha, activation_beta, bound), dtype)
    return (narrowed(found, gate.dtype),)


def swiglu_of(
    gate: Reals,
    linear: Reals,
    numbers: tuple[float, float, float],
    round_to: np.dtype[np.generic] | None = None,
    *,
    is_later: bool = False,
) -> Reals:
    """Return the clamped SwiGLU of onnxruntime: gate * sigmoid(alpha * gate) * (linear + beta).

    Args:
        gate: Of any shape.
        linear: Of the same.
        numbers: alpha, beta, and the bound of both, of the gate from above alone.
        round_to: The type that the activation is rounded to; None for none.
        is_later: Whether the gate is bounded behind its activation.
    """
    alpha, beta, bound = (np.float32(number) for number in numbers)
    with np.errstate(all="ignore"):
        linear = np.clip(linear, -bound, bound)
        if not is_later:
            gate = np.minimum(gate, bound)
        swish = np.asarray(gate * sigmoid_of(alpha * gate))
        if is_later:
            swish = np.minimum(swish, bound)
        if round_to is not None:
            swish = widened(narrowed(swish, round_to))
        return np.asarray(swish * (linear + beta))
