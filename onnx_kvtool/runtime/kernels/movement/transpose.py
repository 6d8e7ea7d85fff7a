"""Transpose-1 and later."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["transpose"]


def transpose(data: Array, *, perm: tuple[int, ...] | None) -> tuple[Array]:
    """Permute the axes of `data`.

    Args:
        data: Any shape and dtype.
        perm: The axis of `data` that each axis of the result is; None reverses them. The text knows
            no negative axes here.

    Returns:
        One array, a view of `data`.

    Raises:
        KernelError: If `perm` is not a permutation of the axes of `data`.
    """
    if perm is None:
        return (data.transpose(),)
    if sorted(perm) != list(range(data.ndim)):
        raise KernelError(
            f"`perm` is {list(perm)}, expected a permutation of 0 to {data.ndim - 1}: `data` has "
            f"shape {data.shape}"
            if data.ndim
            else f"`perm` is {list(perm)}, expected no axes: `data` has rank 0"
        )
    return (data.transpose(perm),)
