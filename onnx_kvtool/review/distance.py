"""How much the values of two tensors differ, read some at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.review.digests import chunks, decoded, is_whole

__all__ = ["Distance", "distance"]

_ELEMENTS = 1 << 19
"""Elements that are compared at a time; a multiple of 8, so that packed ones fill whole bytes."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How much two tensors of one shape differ.

    Attributes:
        largest: The largest difference of two elements; infinite where one is and the other is
            not, and NaN where one alone is NaN.
        relative: The largest difference, divided by the size of the old element where that is
            not 0.
        changed: How many elements differ. NaN is equal to NaN.
        elements: How many there are.
    """

    largest: float
    relative: float
    changed: int
    elements: int


def distance(old: ir.TensorProtocol, new: ir.TensorProtocol) -> Distance | None:
    """Return how much two tensors differ; None where elements are no numbers, or too few or many.

    Args:
        old: A tensor whose data has been judged.
        new: Another one of the same shape; its element type may be another.
    """
    types = {old.dtype, new.dtype}
    if types & {ir.DataType.STRING, ir.DataType.UNDEFINED} or not (is_whole(old) and is_whole(new)):
        return None
    largest = relative = 0.0
    changed = elements = 0
    for a, b in zip(_parts(old), _parts(new), strict=True):
        with np.errstate(all="ignore"):
            gap = np.abs(b - a)
            gap[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
            sizes = np.abs(a)
            ratios = gap[sizes > 0] / sizes[sizes > 0]
        changed += int(np.count_nonzero(gap))
        elements += a.size
        largest = float(np.max(gap, initial=largest))
        relative = float(np.max(ratios, initial=relative))
    return Distance(largest, relative, changed, elements)


def _parts(tensor: ir.TensorProtocol) -> Iterator[np.ndarray[Any, Any]]:
    dtype, left = tensor.dtype, math.prod(tensor.shape.numpy())
    size = _ELEMENTS * int(dtype.bitwidth) // 8
    wide = np.complex128 if dtype in _COMPLEX else np.float64
    for data in chunks(tensor, size):
        count = min(left, _ELEMENTS)
        left -= count
        yield decoded(data, dtype, count).astype(wide)


_COMPLEX = frozenset({ir.DataType.COMPLEX64, ir.DataType.COMPLEX128})
