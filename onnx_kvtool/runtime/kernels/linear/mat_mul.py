"""MatMul."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.linear.product import check_factors, matrix_product

__all__ = ["mat_mul_1"]


def mat_mul_1(A: Array, B: Array) -> tuple[Array]:
    """Compute MatMul of every version: the product as `numpy.matmul` defines it.

    See `matrix_product` for the precision.

    Args:
        A: (..., M, K), or (K,), which counts as one row that the result does not have.
        B: (..., K, N), or (K,), which counts as one column that the result does not have.

    Returns:
        (..., M, N), the dimensions before the matrices broadcast.

    Raises:
        KernelError: If the dtypes differ, one input is a scalar, K differs or the other
            dimensions do not broadcast.
    """
    if B.dtype != A.dtype:
        raise KernelError(f"`B` is of dtype {B.dtype}, expected {A.dtype} as `A`")
    check_factors(A, B)
    return (matrix_product(A, B),)
