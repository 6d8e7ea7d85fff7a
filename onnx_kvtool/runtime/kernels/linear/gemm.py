"""Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.convert import convert
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.linear.product import check_factors, matrix_product

__all__ = ["gemm_7"]


def gemm_7(
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> tuple[Array]:
    """Compute Gemm from version 7 on: alpha * A' * B' + beta * C.

    Narrow floats are computed in float32 and rounded once. Integers are exact and wrap around while
    both factors are 1; with others, the rest is computed in float64 and truncated. A `beta` of 0
    does not hide NaN in `C`: the text has no exception.

    Args:
        A: (M, K), or (K, M) if `transA`.
        B: (K, N), or (N, K) if `transB`.
        C: Broadcasts to (M, N) in one direction; None is 0.
        alpha: Factor of the product.
        beta: Factor of `C`.
        transA: Whether to transpose `A`.
        transB: Whether to transpose `B`.

    Returns:
        (M, N), of the dtype of `A`.

    Raises:
        KernelError: If dtypes differ, `A` or `B` is no matrix, K differs, or `C` does not broadcast
            to (M, N).
    """
    for name, matrix in (("A", A), ("B", B)):
        if matrix.ndim != 2:
            raise KernelError(f"`{name}` has shape {matrix.shape}, expected rank 2")
    for name, operand in (("B", B), ("C", C)):
        if operand is not None and operand.dtype != A.dtype:
            raise KernelError(f"`{name}` is of dtype {operand.dtype}, expected {A.dtype} as `A`")
    left = A.T if transA else A
    right = B.T if transB else B
    if left.shape[1] != right.shape[0]:
        raise KernelError(
            f"`A` with shape {A.shape} and `B` with shape {B.shape} have no common dimension: "
            f"axis {0 if transA else 1} of `A` has size {left.shape[1]}, "
            f"axis {1 if transB else 0} of `B` has {right.shape[0]}",
            help="look at `transA` and `transB`",
        )
    check_factors(left, right)
    _check_addend(C, (left.shape[0], right.shape[1]))
    with np.errstate(all="ignore"):
        return (_sum(left, right, C, alpha, beta),)


def _sum(A: Array, B: Array, C: Array | None, alpha: float, beta: float) -> Array:
    whole = A.dtype.kind in "iu"
    result: npt.NDArray[Any] = matrix_product(A, B) if whole else np.matmul(widened(A), widened(B))
    addend: npt.NDArray[Any] | None = None if C is None else widened(C)
    if whole and (alpha != 1 or (addend is not None and beta != 1)):
        result = result.astype(np.float64)
        addend = None if addend is None else addend.astype(np.float64)
    if alpha != 1:
        result = result * np.asarray(alpha, result.dtype)
    if addend is not None:
        result = result + (addend if beta == 1 else addend * np.asarray(beta, addend.dtype))
    return convert(np.asarray(result), A.dtype)


def _check_addend(C: Array | None, shape: tuple[int, int]) -> None:
    if C is None:
        return
    if C.ndim > 2:
        raise KernelError(f"`C` has shape {C.shape}, expected rank 2 at most")
    for back, (size, wanted) in enumerate(
        zip(reversed(C.shape), reversed(shape), strict=False), start=1
    ):
        if size not in (1, wanted):
            raise KernelError(
                f"`C` with shape {C.shape} does not broadcast to {shape}: "
                f"axis {-back} has size {size}, expected 1 or {wanted}"
            )
