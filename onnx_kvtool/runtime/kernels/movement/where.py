"""Where-9 and -16."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["where"]


def where(condition: Array, X: Array, Y: Array) -> tuple[Array]:
    """Take each element from `X` where `condition` holds, else from `Y`.

    Args:
        condition: bool.
        X: Any dtype.
        Y: The dtype of `X`. All three are broadcast to one shape.

    Returns:
        One array.

    Raises:
        KernelError: If dtypes or shapes do not fit.
    """
    if condition.dtype != np.bool_:
        raise KernelError(f"`condition` is of dtype {condition.dtype}, expected bool")
    if X.dtype != Y.dtype:
        raise KernelError(f"`Y` is of dtype {Y.dtype}, expected {X.dtype} as `X`")
    try:
        return (np.asarray(np.where(condition, X, Y)),)
    except ValueError as error:
        raise KernelError(
            f"`condition`, `X` and `Y` with shapes {condition.shape}, {X.shape} and {Y.shape} "
            "cannot be broadcast to one"
        ) from error
