"""The forms of Gelu that `com.microsoft` has, computed in float32 or wider and rounded once.

onnxruntime 1.31.1 approximates erf, tanh and exp; these do not.
"""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import apply, gelu_of, gelu_tanh_of, sigmoid_of
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["bias_gelu", "fast_gelu", "gelu", "quick_gelu"]


def gelu(X: Array) -> tuple[Array]:
    """Return 0.5 * x * (1 + erf(x / sqrt(2))), in float64 for all types."""
    return apply(gelu_of, X)


def bias_gelu(A: Array, B: Array) -> tuple[Array]:
    """Return `gelu` of a sum that is not rounded before.

    Args:
        A: (..., hidden), rank 1 or more.
        B: (hidden,).

    Raises:
        KernelError: If `B` has another shape.
    """
    _check_bias("B", B, "A", A)
    return apply(lambda a: gelu_of(a + widened(B)), A)


def fast_gelu(X: Array, bias: Array | None = None) -> tuple[Array]:
    """Return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) of the sum with a bias.

    Args:
        X: (..., hidden), rank 1 or more with a bias.
        bias: (hidden,); None for zero.

    Raises:
        KernelError: If `bias` has another shape.
    """
    if bias is None:
        return apply(gelu_tanh_of, X)
    _check_bias("bias", bias, "X", X)
    added = widened(bias)
    return apply(lambda x: gelu_tanh_of(x + added), X)


def quick_gelu(X: Array, *, alpha: float) -> tuple[Array]:
    """Return x * sigmoid(alpha * x)."""
    return apply(lambda x: x * sigmoid_of(alpha * x), X)


def _check_bias(name: str, bias: Array, of: str, x: Array) -> None:
    if x.ndim == 0 or bias.shape != x.shape[-1:]:
        raise KernelError(
            f"`{name}` has shape {bias.shape}, expected one dimension, the last of `{of}` with "
            f"shape {x.shape}"
        )
