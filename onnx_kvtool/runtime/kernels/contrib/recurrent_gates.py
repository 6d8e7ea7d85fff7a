"""LinearAttentionGate of `com.microsoft`: how much a state decays, and how much is written."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = ["linear_attention_gate"]


def linear_attention_gate(
    a: Array, dt_bias: Array, decay_scale: Array, b: Array | None = None
) -> tuple[Array, ...]:
    """Return decay_scale * log(1 + exp(a + dt_bias)) and 1 / (1 + exp(-b)), rounded once.

    Args:
        a: (..., H), rank 1 or more.
        dt_bias: H elements, float32.
        decay_scale: H elements, float32; minus the exponential of A_log.
        b: Of the shape of `a`; None where nobody reads `beta`.

    Returns:
        decay and, with `b`, beta, of the shape and the type of `a`.

    Raises:
        KernelError: If `a` is a scalar, a vector has not H elements, or `b` has another shape.
    """
    if a.ndim == 0:
        raise KernelError("`a` is a scalar, expected (..., H)")
    heads = a.shape[-1]
    for name, vector in (("dt_bias", dt_bias), ("decay_scale", decay_scale)):
        if vector.size != heads:
            raise KernelError(f"`{name}` has {vector.size} elements, expected {heads}, as `a` has")
    with np.errstate(all="ignore"):
        rate = np.logaddexp(np.float32(0), widened(a) + dt_bias.reshape(-1))
        decay = narrowed(decay_scale.reshape(-1) * rate, a.dtype)
        if b is None:
            return (decay,)
        check_shape("b", b.shape, a.shape, "that of `a`")
        return decay, narrowed(1 / (1 + np.exp(-widened(b))), a.dtype)
