"""FusedMatMul of `com.microsoft`: a product of transposed factors, times a number."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.linear import check_factors

__all__ = ["fused_mat_mul"]


def fused_mat_mul(
    A: Array,
    B: Array,
    *,
    alpha: float,
    transA: int,
    transB: int,
    transBatchA: int,
    transBatchB: int,
) -> tuple[Array]:
    """Return alpha * A B of transposed factors, as onnxruntime 1.31.1 does on a CPU.

    Narrow floats are multiplied and added in float32, and rounded once, after the factor.

    Args:
        A: (..., M, K), or (K,), which counts as one row that the result does not have.
        B: (..., K, N), or (K,), which counts as one column that the result does not have.
        alpha: Factor of the product.
        transA: Whether the last two axes of `A` are swapped; nothing for rank 1.
        transB: The same for `B`.
        transBatchA: Whether axis 0 of `A`, (M, ..., K), first moves behind the other axes of the
            stack; with `transA` axis 0 is K, (K, ..., M).
        transBatchB: The same for `B`, (K, ..., N), with `transB` (N, ..., K).

    Returns:
        (..., M, N), the dimensions before the matrices broadcast.

    Raises:
        KernelError: If the shapes do not fit (`check_factors`), or a batch is transposed and the
            ranks differ or are below 3.
    """
    if (transBatchA or transBatchB) and not A.ndim == B.ndim > 2:
        raise KernelError(
            f"`A` and `B` have shapes {A.shape} and {B.shape}, expected the same rank, 3 or more, "
            "to transpose a batch"
        )
    left = _transposed(A, bool(transBatchA), bool(transA))
    right = _transposed(B, bool(transBatchB), bool(transB))
    check_factors(left, right)
    with np.errstate(all="ignore"):
        product = np.asarray(np.matmul(widened(left), widened(right)))
        return (narrowed(np.asarray(product * product.dtype.type(alpha)), A.dtype),)


def _transposed(factor: Array, batch: bool, matrix: bool) -> Array:
    if batch:
        factor = np.moveaxis(factor, 0, -2)
    return factor.swapaxes(-1, -2) if matrix and factor.ndim > 1 else factor
