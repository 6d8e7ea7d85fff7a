"""EyeLike-9 and -22."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["eye_like"]


def eye_like(input: Array, *, dtype: int | None, k: int) -> tuple[Array]:
    """Return a matrix with ones on a diagonal and zeros elsewhere.

    Args:
        input: (R, C); only its shape and dtype are read.
        dtype: Number of the element type of the result; None for that of `input`.
        k: Column of the one in row 0: above 0 an upper diagonal, below 0 a lower one. A diagonal
            outside the matrix leaves zeros only.

    Returns:
        (R, C).

    Raises:
        KernelError: If `input` is not of rank 2; if `dtype` is no type of numbers or bool.
    """
    if input.ndim != 2:
        raise KernelError(f"`input` has shape {input.shape}, expected two dimensions")
    result = np.zeros(input.shape, input.dtype if dtype is None else _numpy_dtype(dtype))
    rows = np.arange(input.shape[0])
    rows = rows[(rows + k >= 0) & (rows + k < input.shape[1])]
    result[rows, rows + k] = 1
    return (result,)


def _numpy_dtype(number: int) -> np.dtype[np.generic]:
    try:
        dtype: np.dtype[np.generic] = ir.DataType(number).numpy()
    except (ValueError, TypeError) as error:
        raise KernelError(f"`dtype` is {number}, which is no element type") from error
    if dtype.kind == "O":
        raise KernelError(f"`dtype` is {number}, {ir.DataType(number).name}, which has no one")
    return dtype
