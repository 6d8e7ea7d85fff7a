"""Products of quantized factors that give real numbers, of `com.microsoft`."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.quantize_linear import dynamic_quantize_linear_11
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.linear.quantized import mat_mul_integer_10
from onnx_kvtool.runtime.kernels.normalization.checks import check_shape

__all__ = ["dynamic_quantize_mat_mul", "mat_mul_integer_to_float"]


def dynamic_quantize_mat_mul(
    A: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
    *,
    context: Context,
) -> tuple[Array]:
    """Quantize the left factor by its own range, and multiply as `mat_mul_integer_to_float`.

    Args:
        A: (..., M, K), float32; see `dynamic_quantize_linear_11`, whose one scale is for all of it.
        B: (K, N), int8 or uint8, or a stack of such.
        b_scale: One element, or (N,).
        b_zero_point: One element, or (N,), of the dtype of `B`; None for 0.
        bias: (N,); None for zero.
        context: Handed on.

    Raises:
        KernelError: If shapes do not fit.
    """
    codes, scale, zero_point = dynamic_quantize_linear_11(A, context=context)
    return mat_mul_integer_to_float(codes, B, scale, b_scale, zero_point, b_zero_point, bias)


def mat_mul_integer_to_float(
    A: Array,
    B: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> tuple[Array]:
    """Multiply codes without their zero points, then by both scales, and add a bias.

    The product of the codes is an int32, which becomes a float32; the product of the scales is
    taken first. onnxruntime 1.31.1 gives the same bits on a CPU.

    Args:
        A: (..., M, K), int8 or uint8.
        B: (K, N), int8 or uint8, or a stack of such.
        a_scale: One element.
        b_scale: One element, or (N,).
        a_zero_point: One element, of the dtype of `A`; None for 0.
        b_zero_point: One element, or (N,), of the dtype of `B`; None for 0.
        bias: (N,); None for zero.

    Returns:
        (..., M, N), of the type of the scales.

    Raises:
        KernelError: If shapes do not fit.
    """
    columns = B.shape[-1:] if B.ndim > 1 else ()
    for name, values in (("a_scale", a_scale), ("a_zero_point", a_zero_point)):
        if values is not None and values.size != 1:
            raise KernelError(f"`{name}` has shape {values.shape}, expected one element")
    for name, values in (("b_scale", b_scale), ("b_zero_point", b_zero_point)):
        if values is not None and values.size != 1:
            check_shape(name, values.shape, columns, "one element, or one for each column of `B`")
    if bias is not None:
        check_shape("bias", bias.shape, columns, "one for each column of `B`")
    (product,) = mat_mul_integer_10(A, B, a_zero_point, b_zero_point)
    with np.errstate(all="ignore"):
        right = widened(b_scale) if b_scale.size != 1 else widened(b_scale).reshape(())
        result = product.astype(np.float32) * (widened(a_scale).reshape(()) * right)
        if bias is not None:
            result = result + widened(bias)
    return (narrowed(np.asarray(result), b_scale.dtype),)
