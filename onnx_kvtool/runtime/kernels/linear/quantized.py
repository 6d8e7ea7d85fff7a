"""MatMulInteger and QLinearMatMul."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.formats import INTEGER_RANGES
from onnx_kvtool.runtime.kernels.conversion.rounding import as_doubles, round_to
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.linear.product import check_factors

__all__ = ["mat_mul_integer_10", "q_linear_mat_mul_10"]

Doubles = npt.NDArray[np.float64]


def mat_mul_integer_10(
    A: Array,
    B: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
) -> tuple[Array]:
    """Compute MatMulInteger-10: the product of the codes without their zero points.

    Exact in float64: 2^37 terms of 16 bits are needed to exceed it. Sums beyond int32 wrap around,
    which the text allows.

    Args:
        A: (..., M, K), int8 or uint8.
        B: (..., K, N), int8 or uint8.
        a_zero_point: A scalar, (M,) or (..., M, 1), of the dtype of `A`; None is 0.
        b_zero_point: A scalar, (N,) or (..., 1, N), of the dtype of `B`; None is 0.

    Returns:
        int32, as `numpy.matmul` shapes it.

    Raises:
        KernelError: If shapes or dtypes do not fit.
    """
    check_factors(A, B)
    a = _centered(A, a_zero_point, ("A", "a_zero_point"), rows=True)
    b = _centered(B, b_zero_point, ("B", "b_zero_point"), rows=False)
    return (np.asarray(np.matmul(a, b)).astype(np.int64).astype(np.int32),)


def q_linear_mat_mul_10(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> tuple[Array]:
    """Compute QLinearMatMul of versions 10 and 21: the product of two quantized factors, quantized.

    Scales and quotient are taken in float64, so that only the rounding to even shows; runtimes
    that multiply the scales in float32 may be off by one where that is a tie.

    Args:
        a: (..., M, K): codes.
        a_scale: A scalar, (M,) or (..., M, 1).
        a_zero_point: Of the shape of `a_scale`, of the dtype of `a`.
        b: (..., K, N): codes.
        b_scale: A scalar, (N,) or (..., 1, N).
        b_zero_point: Of the shape of `b_scale`, of the dtype of `b`.
        y_scale: As `a_scale`, for the rows of the result.
        y_zero_point: Of the shape of `y_scale`, of the dtype of the result.

    Returns:
        Codes of the dtype of `y_zero_point`, as `numpy.matmul` shapes them.

    Raises:
        KernelError: If shapes or dtypes do not fit.
    """
    check_factors(a, b, ("a", "b"))
    left = _centered(a, a_zero_point, ("a", "a_zero_point"), rows=True)
    right = _centered(b, b_zero_point, ("b", "b_zero_point"), rows=False)
    left = left * _laid_out(a_scale, a.shape, "a_scale", rows=True)
    right = right * _laid_out(b_scale, b.shape, "b_scale", rows=False)
    with np.errstate(all="ignore"):
        product: Doubles = np.asarray(np.matmul(left, right))
        quotient = product / _laid_out(y_scale, product.shape, "y_scale", rows=True)
        zero = _laid_out(y_zero_point, product.shape, "y_zero_point", rows=True)
        dtype = y_zero_point.dtype
        if dtype not in INTEGER_RANGES:
            return (round_to(np.asarray(quotient + zero), dtype),)
        low, high = INTEGER_RANGES[dtype]
        return (np.clip(np.rint(quotient) + zero, low, high).astype(np.int64).astype(dtype),)


def _centered(
    codes: Array, zero_point: Array | None, names: tuple[str, str], *, rows: bool
) -> Doubles:
    if zero_point is None:
        return as_doubles(codes)
    if zero_point.dtype != codes.dtype:
        raise KernelError(
            f"`{names[1]}` is of dtype {zero_point.dtype}, expected {codes.dtype} as `{names[0]}`"
        )
    return np.asarray(as_doubles(codes) - _laid_out(zero_point, codes.shape, names[1], rows=rows))


def _laid_out(values: Array, shape: tuple[int, ...], name: str, *, rows: bool) -> Doubles:
    """Return a value per tensor, row or column so that it broadcasts to a stack of matrices."""
    doubles: npt.NDArray[Any] = as_doubles(values)
    if values.size == 1:
        return doubles.reshape(())
    if values.ndim == 1 and rows and len(shape) > 1:
        doubles = doubles[:, None]
    kept = -2 if rows else -1
    for back in range(1, doubles.ndim + 1):
        size = doubles.shape[-back]
        fits = back <= len(shape) and (
            size in (1, shape[-back]) if -back == kept or back > 2 else size == 1
        )
        if not fits:
            raise KernelError(
                f"`{name}` has shape {values.shape}, expected (), one element per "
                f"{'row' if rows else 'column'}, or such a stack: the matrices have shape {shape}"
            )
    return doubles
