"""Einsum."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.linear.equation import explicit_equation

__all__ = ["einsum_12"]


def einsum_12(*Inputs: Array, equation: str) -> tuple[Array]:
    """Compute Einsum from version 12 on: sums of products by an equation.

    Narrow floats are computed in float32 and rounded once; integers wrap around. Sizes of a letter
    must agree, also where one is 1, which numpy would broadcast: the text broadcasts the
    dimensions of ellipses only.

    Args:
        Inputs: One operand per term, of one dtype.
        equation: See `explicit_equation`.

    Raises:
        KernelError: If the equation is wrong or does not fit the operands, or dtypes differ.
    """
    if not Inputs:
        raise KernelError("there is no operand, expected at least 1")
    for number, operand in enumerate(Inputs):
        if operand.dtype != Inputs[0].dtype:
            raise KernelError(
                f"`Inputs`[{number}] is of dtype {operand.dtype}, "
                f"expected {Inputs[0].dtype} as `Inputs`[0]"
            )
    explicit = explicit_equation(equation, [operand.shape for operand in Inputs])
    operands: list[Any] = [widened(operand) for operand in Inputs]
    with np.errstate(all="ignore"):
        try:
            result = np.asarray(np.einsum(explicit, *operands, optimize=len(operands) > 1))
        except ValueError as error:  # it takes 63 operands, and 64 dimensions
            raise KernelError(f"numpy says: {error}") from error
        return (np.array(narrowed(result, Inputs[0].dtype)),)
