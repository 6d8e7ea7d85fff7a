"""Products of quantized factors, and QuantizeLinear and its kin, of `com.microsoft`."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.ops.bnb4 import numbers_of_codes
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.codes import codes_of
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.conversion.quantize import (
    dequantize_linear_10,
    dynamic_quantize_linear_11,
    quantize_linear_10,
)
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.linear import mat_mul_integer_10
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = [
    "dequantize_linear",
    "dynamic_quantize_mat_mul",
    "mat_mul_bnb4",
    "mat_mul_integer_to_float",
    "q_gemm",
    "quantize_linear",
]


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


def q_gemm(
    A: Array,
    a_scale: Array,
    a_zero_point: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array,
    C: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    alpha: float,
    transA: int,
    transB: int,
) -> tuple[Array]:
    """Multiply matrices of codes, add an int32 bias, and scale: numbers, or codes with `y_scale`.

    Args:
        A: (M, K), or (K, M) if `transA`.
        a_scale: One element.
        a_zero_point: One element.
        B: (K, N), or (N, K) if `transB`.
        b_scale: One element, or (N,).
        b_zero_point: Likewise.
        C: Broadcasts to (M, N), of scale alpha * a_scale * b_scale; None for 0.
        y_scale: One element; None for a result of float32.
        y_zero_point: Of the type of the result; None for uint8 and 0.
        alpha: Factor of all.
        transA: Whether `A` is transposed.
        transB: Whether `B` is transposed.

    Raises:
        KernelError: If shapes do not fit.
    """
    left, right = (A.T if transA else A), (B.T if transB else B)
    (total,) = mat_mul_integer_10(left, right, a_zero_point.reshape(()), b_zero_point)
    if C is not None:
        total = np.asarray(total.astype(np.int64) + C.astype(np.int64)).astype(np.int32)
    factor = a_scale.reshape(()).astype(np.float32) * np.float32(alpha) * b_scale.astype(np.float32)
    result = np.asarray(total.astype(np.float32) * factor, np.float32)
    if y_scale is None:
        return (result,)
    kind = np.dtype(np.uint8) if y_zero_point is None else y_zero_point.dtype
    return (codes_of(result, y_scale, y_zero_point, kind, "Y"),)


def mat_mul_bnb4(
    A: Array,
    B: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int,
    transB: int,
) -> tuple[Array]:
    """Multiply by a weight of bitsandbytes: the number of each code times the scale of its block.

    Args:
        A: (..., K).
        B: (N * K / 2 rounded up,), uint8, the first element of a byte in its high bits.
        absmax: (N * K / block_size rounded up,).
        K: Columns of `A`.
        N: Columns of the result.
        block_size: Elements that share a scale, counted row after row.
        quant_type: 0 for FP4, 1 for NF4.
        training_mode: Has no meaning here.
        transB: 1: onnxruntime 1.32 reads outside of the weight where it is 0.

    Raises:
        KernelError: If shapes do not fit, and for what is refused.
    """
    refuse_value("quant_type", quant_type, 0, 1)
    refuse_value("transB", transB, 1)
    count = K * N
    if block_size < 1 or K < 1 or N < 1:
        raise KernelError("`K`, `N` or `block_size` is below 1")
    check_shape("B", B.reshape(-1).shape, (-(-count // 2),), "half a byte for each of `K` * `N`")
    check_shape("absmax", absmax.reshape(-1).shape, (-(-count // block_size),), "one of each block")
    flat = B.reshape(-1).astype(np.uint8)
    codes = np.stack([flat >> 4, flat & 15], axis=-1).reshape(-1)[:count]
    factors = widened(absmax).reshape(-1)[np.arange(count) // block_size]
    with np.errstate(all="ignore"):
        weights = (numbers_of_codes(quant_type)[codes] * factors).reshape(N, K)
        return (narrowed(np.asarray(np.matmul(widened(A), weights.T)), A.dtype),)


def dequantize_linear(
    x: Array, x_scale: Array, x_zero_point: Array | None = None, *, axis: int | None
) -> tuple[Array]:
    """Return what `dequantize_linear_10` does; the axis is 1 without one."""
    return dequantize_linear_10(x, x_scale, x_zero_point, axis=1 if axis is None else axis)


def quantize_linear(
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int | None,
    context: Context,
) -> tuple[Array]:
    """Return what `quantize_linear_10` does; the axis is 1 without one."""
    along = 1 if axis is None else axis
    return quantize_linear_10(x, y_scale, y_zero_point, axis=along, context=context)
