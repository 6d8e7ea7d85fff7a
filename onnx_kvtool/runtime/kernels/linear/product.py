"""Matrix products over all dtypes, with the checks that they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_room

__all__ = ["check_factors", "matrix_product"]

_EXACT = 2.0**53


def matrix_product(A: Array, B: Array) -> Array:
    """Return the product of two stacks of matrices in their dtype, as `numpy.matmul` defines it.

    Narrow floats are multiplied and added in float32 and rounded once. Integers wrap around; as
    long as no sum can exceed 53 bits they go through float64, which is exact then and many times
    faster.

    Args:
        A: (..., M, K), or (K,).
        B: (..., K, N), or (K,), of the dtype of `A`; see `check_factors`.
    """
    if A.dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            return narrowed(np.asarray(np.matmul(widened(A), widened(B))), A.dtype)
    if _magnitude(A) * _magnitude(B) * A.shape[-1] < _EXACT:
        product: npt.NDArray[Any] = np.matmul(A.astype(np.float64), B.astype(np.float64))
        wide = np.asarray(product).astype(np.int64)
        return wide.astype(A.dtype)
    return np.asarray(np.matmul(A, B))


def check_factors(A: Array, B: Array, names: tuple[str, str] = ("A", "B")) -> None:
    """Check that the shapes of two factors fit, as `numpy.matmul` wants them.

    Raises:
        KernelError: If one is a scalar, if their common dimension K differs, if the dimensions
            before the matrices do not broadcast, or if there is no room for the product.
    """
    a, b = names
    for name, factor in ((a, A), (b, B)):
        if factor.ndim == 0:
            raise KernelError(f"`{name}` is a scalar, expected rank 1 or more")
    axis = -2 if B.ndim > 1 else -1
    if A.shape[-1] != B.shape[axis]:
        raise KernelError(
            f"axis -1 of `{a}` with shape {A.shape} has size {A.shape[-1]}, "
            f"expected {B.shape[axis]} as axis {axis} of `{b}` with shape {B.shape}"
        )
    stacks = zip(reversed(A.shape[:-2]), reversed(B.shape[:-2]), strict=False)
    for back, (one, other) in enumerate(stacks, start=3):
        if one != other and 1 not in (one, other):
            raise KernelError(
                f"`{a}` with shape {A.shape} and `{b}` with shape {B.shape} do not broadcast: "
                f"axis {-back} has sizes {one} and {other}"
            )
    stack = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    require_room((*stack, *A.shape[-2:-1], *B.shape[-1:]), A.dtype, f"`{a}` times `{b}`")


def _magnitude(x: Array) -> float:
    numbers: npt.NDArray[Any] = x
    if x.size == 0:
        return 0.0
    return max(abs(float(numbers.max())), abs(float(numbers.min())))
