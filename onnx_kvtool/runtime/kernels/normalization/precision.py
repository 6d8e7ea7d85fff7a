"""Rounding to a type between two steps that are computed in another."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.half import round_to_half

__all__ = ["Reals", "floating_type", "rounded"]

Reals: TypeAlias = npt.NDArray[Any]
"""Values in a type that numpy computes in: float32 or float64."""


def rounded(values: Reals, dtype: np.dtype[Any]) -> Reals:
    """Return values as rounded to an element type, but still in the type in which to compute.

    The result is `values` itself where they have that type.
    """
    if values.dtype == dtype:
        return values
    if dtype == np.float16 and values.dtype == np.float32:
        return round_to_half(values)
    return values.astype(dtype).astype(values.dtype)


def floating_type(number: int, attribute: str) -> np.dtype[Any]:
    """Return the dtype of an element type that an attribute names.

    Args:
        number: An element type of ONNX.
        attribute: The name of the attribute, for the message.

    Raises:
        KernelError: If it is none of float (1), float16 (10), double (11) and bfloat16 (16).
    """
    import ml_dtypes

    known: dict[int, npt.DTypeLike] = {
        1: np.float32,
        10: np.float16,
        11: np.float64,
        16: ml_dtypes.bfloat16,
    }
    if number not in known:
        raise KernelError(
            f"`{attribute}` is {number}, expected 1 (float), 10 (float16), 11 (double) or 16 "
            "(bfloat16)"
        )
    return np.dtype(known[number])
