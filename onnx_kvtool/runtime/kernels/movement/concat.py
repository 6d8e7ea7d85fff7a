"""Concat-4, -11 and -13."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["concat"]


def concat(*inputs: Array, axis: int) -> tuple[Array]:
    """Join arrays along an axis.

    Args:
        inputs: One or more arrays of one dtype and rank, alike in all dimensions but `axis`.
        axis: Counted from the back if negative, before version 11 too, as in onnxruntime.

    Returns:
        One array.

    Raises:
        KernelError: If there is no input; if dtypes, ranks or other dimensions differ; if `axis` is
            out of range, as it always is for rank 0.
    """
    if not inputs:
        raise KernelError("`inputs` is empty, expected at least one array")
    first = inputs[0]
    axis = count_axis(axis, first.ndim, of="inputs[0]")
    for position, value in enumerate(inputs):
        if value.dtype != first.dtype:
            raise KernelError(
                f"`inputs[{position}]` is of dtype {value.dtype}, expected {first.dtype} as "
                "`inputs[0]`"
            )
        differs = value.ndim != first.ndim or any(
            got != expected
            for dim, (got, expected) in enumerate(zip(value.shape, first.shape, strict=True))
            if dim != axis
        )
        if differs:
            raise KernelError(
                f"`inputs[{position}]` has shape {value.shape}, expected that of `inputs[0]`, "
                f"{first.shape}, but for axis {axis}"
            )
    return (np.concatenate(inputs, axis=axis),)
