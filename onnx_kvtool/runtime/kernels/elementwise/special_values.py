"""IsNaN and IsInf."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["is_inf_10", "is_nan_9"]


def is_nan_9(X: Array) -> tuple[Array]:
    """Compute IsNaN from version 9 on; types without NaN have none."""
    numbers: npt.NDArray[Any] = X
    return (np.asarray(np.isnan(numbers), np.bool_),)


def is_inf_10(X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> tuple[Array]:
    """Compute IsInf from version 10 on; types without infinities have none.

    Args:
        X: Floats of any shape.
        detect_negative: Whether -infinity counts.
        detect_positive: Whether infinity counts.
    """
    numbers: npt.NDArray[Any] = X
    infinite = np.asarray(np.isinf(numbers), np.bool_)
    if not detect_negative:
        infinite = infinite & ~np.signbit(numbers)
    if not detect_positive:
        infinite = infinite & np.signbit(numbers)
    return (np.asarray(infinite),)
