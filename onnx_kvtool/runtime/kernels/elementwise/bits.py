"""Operators on the bits of integers: BitShift; the others are functions of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.broadcast import check_operands
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["bit_shift_11"]

Numbers = npt.NDArray[Any]


def bit_shift_11(X: Array, Y: Array, *, direction: str) -> tuple[Array]:
    """Compute BitShift from version 11 on: the bits of `X` moved by `Y` places, broadcast.

    Signed types, which version 28 allows, shift right by copying the sign. Amounts that are
    negative or not less than the width give what is left when every bit has gone: 0, or -1 for a
    negative number shifted right; that is the text of BitShift-28, which this takes for version 11
    too, where it is silent.

    Args:
        X: Integers.
        Y: Places, of the dtype of `X`.
        direction: `LEFT` or `RIGHT`.

    Raises:
        KernelError: If the dtypes differ, the shapes do not broadcast, or `direction` is another
            string.
    """
    check_operands((X, Y), ("X", "Y"))
    if direction not in ("LEFT", "RIGHT"):
        raise KernelError(f"`direction` is `{direction}`, expected `LEFT` or `RIGHT`")
    numbers: Numbers = X
    places: Numbers = Y
    width = 8 * numbers.dtype.itemsize
    gone = (places < 0) | (places >= width)
    within = np.where(gone, 0, places).astype(numbers.dtype)
    if direction == "LEFT":
        moved, empty = np.left_shift(numbers, within), np.zeros_like(numbers)
    else:
        moved, empty = np.right_shift(numbers, within), np.where(numbers < 0, -1, 0)
    return (np.asarray(np.where(gone, empty.astype(numbers.dtype), moved), numbers.dtype),)
