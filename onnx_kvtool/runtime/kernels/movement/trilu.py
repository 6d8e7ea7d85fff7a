"""Trilu-14."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["trilu"]


def trilu(input: Array, k: Array | None = None, *, upper: int) -> tuple[Array]:
    """Keep one triangle of each matrix and set the rest to zero.

    Args:
        input: (..., N, M), rank 2 or more, numbers or bool.
        k: One element, rank 0 or 1, int64: the diagonal that bounds the triangle, itself kept;
            above 0 an upper one. None for 0.
        upper: Whether to keep what is on and above the diagonal, else on and below.

    Returns:
        One array with the shape and dtype of `input`.

    Raises:
        KernelError: If `input` has rank below 2 or holds strings, which have no zero; if `k` is not
            one int64.
    """
    if input.ndim < 2:
        raise KernelError(f"`input` has shape {input.shape}, expected at least two dimensions")
    if input.dtype.kind == "O":
        raise KernelError("`input` holds strings, which have no zero")
    diagonal = 0
    if k is not None:
        if k.dtype != np.int64 or k.size != 1 or k.ndim > 1:
            raise KernelError(f"`k` is {k.dtype} of shape {k.shape}, expected one int64")
        diagonal = int(k.reshape(())[()])
    rows, columns = input.shape[-2:]
    # Beyond the corners nothing changes, and numpy's arithmetic could overflow.
    diagonal = min(max(diagonal, -rows - 1), columns + 1)
    if upper:
        kept = ~np.tri(rows, columns, diagonal - 1, dtype=np.bool_)
    else:
        kept = np.tri(rows, columns, diagonal, dtype=np.bool_)
    return (np.where(kept, input, np.zeros((), input.dtype)),)
