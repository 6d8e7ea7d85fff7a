"""Div and Mod."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.broadcast import check_operands
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["div_7", "mod_10", "mod_28"]

Numbers = npt.NDArray[Any]


def div_7(A: Array, B: Array) -> tuple[Array]:
    """Compute Div from version 7 on: `A` / `B`, broadcast.

    Integers are truncated towards zero, as the text of Div-14 says since onnx 1.18; the least
    integer divided by -1 wraps around to itself. Floats follow IEEE 754 and round once.

    Raises:
        KernelError: If the dtypes differ, the shapes do not broadcast, or an integer is divided by
            zero, which the text leaves undefined.
    """
    check_operands((A, B), ("A", "B"))
    x: Numbers = A
    y: Numbers = B
    with np.errstate(all="ignore"):
        if not _whole(x):
            return (np.asarray(x / y),)
        _check_divisor(y)
        floor = x // y
        if x.dtype.kind == "u":
            return (np.asarray(floor),)
        inexact = (floor * y != x) & ((x < 0) != (y < 0))
        return (np.asarray(floor + inexact.astype(x.dtype), x.dtype),)


def mod_10(A: Array, B: Array, *, fmod: int = 0) -> tuple[Array]:
    """Compute Mod of versions 10 and 13: as `mod_28`, but floats need `fmod` 1.

    Raises:
        KernelError: As `mod_28`, or if floats come with `fmod` 0, which these versions forbid.
    """
    if fmod == 0 and not _whole(A):
        raise KernelError(
            f"`fmod` is 0, expected 1 for operands of dtype {A.dtype}",
            help="set `fmod` to 1, or use version 28 of Mod",
        )
    return mod_28(A, B, fmod=fmod)


def mod_28(A: Array, B: Array, *, fmod: int = 0) -> tuple[Array]:
    """Compute Mod-28: the remainder of `A` / `B`, broadcast.

    With `fmod` 0 the quotient is floored and the result has the sign of the divisor, zeros too;
    with `fmod` 1 it is truncated and the result has the sign of the dividend, zeros too. Narrow
    floats are computed in float32, in which their remainders are exact.

    Raises:
        KernelError: If the dtypes differ, the shapes do not broadcast, `fmod` is neither 0 nor 1,
            or an integer is divided by zero.
    """
    check_operands((A, B), ("A", "B"))
    if fmod not in (0, 1):
        raise KernelError(f"`fmod` is {fmod}, expected 0 or 1")
    x, y = widened(A), widened(B)
    with np.errstate(all="ignore"):
        if _whole(x):
            _check_divisor(y)
        return (np.asarray(np.fmod(x, y) if fmod else np.mod(x, y)).astype(A.dtype),)


def _whole(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _check_divisor(divisor: Numbers) -> None:
    zeros = divisor == 0
    if zeros.any():
        index = [int(i) for i in np.argwhere(zeros)[0]]
        raise KernelError(f"`B`{index} is 0, and division of integers by zero is undefined")
