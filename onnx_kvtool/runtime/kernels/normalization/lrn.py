"""LRN: division by a power of the squares of neighbouring channels."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_rank

__all__ = ["lrn_1"]


def lrn_1(X: Array, *, alpha: float, beta: float, bias: float, size: int) -> tuple[Array]:
    """Divide by (bias + alpha / size * sum of squares) ** beta over neighbouring channels.

    Channel c sums over c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), as far as they exist.
    16-bit types are computed in float32 and rounded once.

    Args:
        X: (N, C, D1, ..., Dn), rank 2 or more.
        alpha: Factor of the sum.
        beta: The exponent.
        bias: Added to the sum.
        size: Channels that are summed, 1 or more.

    Raises:
        KernelError: If the rank is below 2 or `size` below 1.
    """
    check_rank("X", X.shape, 2, "(N, C, D1, ..., Dn)")
    if size < 1:
        raise KernelError(f"`size` is {size}, expected 1 or more")
    x = widened(X)
    channels = x.shape[1]
    with np.errstate(all="ignore"):
        squares = x * x
        total = np.zeros_like(x)
        before, behind = (size - 1) // 2, size // 2
        for shift in range(max(-before, 1 - channels), min(behind, channels - 1) + 1):
            first, last = max(0, -shift), channels - max(0, shift)
            total[:, first:last] += squares[:, first + shift : last + shift]
        y = x / (bias + alpha / size * total) ** beta
        return (np.asarray(y.astype(X.dtype, copy=False)),)
