"""Operators of any number of operands: Min, Max, Sum and Mean."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.broadcast import check_operands
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["max_8", "mean_8", "min_8", "sum_8"]

Numbers = npt.NDArray[Any]


def min_8(*data_0: Array) -> tuple[Array]:
    """Compute Min from version 8 on: the least element at each place, broadcast; NaN wins.

    The text does not mention NaN; numpy, onnx.reference and onnxruntime 1.31 agree that it wins.

    Raises:
        KernelError: If there is no operand, dtypes differ, or shapes do not broadcast.
    """
    _check(data_0)
    return (np.asarray(functools.reduce(np.minimum, data_0)),)


def max_8(*data_0: Array) -> tuple[Array]:
    """Compute Max from version 8 on: as `min_8`, with the greatest element."""
    _check(data_0)
    return (np.asarray(functools.reduce(np.maximum, data_0)),)


def sum_8(*data_0: Array) -> tuple[Array]:
    """Compute Sum from version 8 on, broadcast: added from the first on.

    Narrow floats are added in float32 and rounded at the end.

    Raises:
        KernelError: As `min_8`.
    """
    return (narrowed(_total(data_0), data_0[0].dtype),)


def mean_8(*data_0: Array) -> tuple[Array]:
    """Compute Mean from version 8 on: the sum as in `sum_8`, divided by the number of operands."""
    with np.errstate(all="ignore"):
        total = _total(data_0)
        mean = total / np.asarray(len(data_0), total.dtype)
    return (narrowed(np.asarray(mean), data_0[0].dtype),)


def _total(operands: tuple[Array, ...]) -> Numbers:
    _check(operands)
    with np.errstate(all="ignore"):
        return np.asarray(functools.reduce(np.add, [widened(x) for x in operands]))


def _check(operands: tuple[Array, ...]) -> None:
    if not operands:
        raise KernelError("there is no operand, expected at least 1")
    check_operands(operands, [f"data_0[{number}]" for number in range(len(operands))])
