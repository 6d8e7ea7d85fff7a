"""Operators of two operands of one dtype that numpy computes as ONNX wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.elementwise.broadcast import check_operands
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, KernelFunction

__all__ = ["over_a_b"]

Numbers = npt.NDArray[Any]
Compute = Callable[[Numbers, Numbers], Any]


def over_a_b(compute: Compute) -> KernelFunction:
    """Return a kernel over `A` and `B` that broadcasts them and applies a function of numpy.

    Integers wrap around, as in numpy. Narrow floats are computed in float32 and rounded; for sums,
    differences and products that is the same as rounding the exact result once. Overflow, division
    by zero and invalid operations give infinity and NaN.

    Args:
        compute: The function; its result has the dtype that the schema wants.

    Returns:
        A kernel that raises KernelError if the dtypes differ or the shapes do not broadcast.
    """

    def kernel(A: Array, B: Array) -> tuple[Array]:
        check_operands((A, B), ("A", "B"))
        with np.errstate(all="ignore"):
            result = np.asarray(compute(widened(A), widened(B)))
        return (result if result.dtype == np.bool_ else narrowed(result, A.dtype),)

    return kernel
