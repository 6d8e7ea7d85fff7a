"""LpNormalization: division by a norm along an axis."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["lp_normalization_1"]


def lp_normalization_1(input: Array, *, axis: int, p: int) -> tuple[Array]:
    """Divide by the sum of absolute values (p of 1), or by the root of the sum of squares (2).

    Computed in float64 and rounded once, so that squares of a float32 neither vanish nor overflow.
    Zeros where the norm is zero. onnx.reference 1.23.2 takes p of 1 without the absolute value.

    Args:
        input: Any shape of rank 1 or more.
        axis: Counted from the back if negative.
        p: 1 or 2.

    Raises:
        KernelError: If `axis` is outside the rank, or `p` is another number.
    """
    front = count_axis(axis, input.ndim, of="input")
    if p not in (1, 2):
        raise KernelError(f"`p` is {p}, expected 1 or 2")
    x = input.astype(np.float64)
    with np.errstate(all="ignore"):
        norm = np.linalg.norm(x, ord=p, axis=front, keepdims=True)
        y = np.divide(x, norm, out=np.zeros_like(x), where=np.broadcast_to(norm != 0, x.shape))
        return (y.astype(input.dtype),)
