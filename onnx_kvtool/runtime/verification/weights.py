"""Weights that two models share, compared with each other."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.files.converted import ConvertedTensor
from onnx_kvtool.core.files.external_data import array
from onnx_kvtool.runtime.comparison.compare import bits_differ, compare, distances, largest
from onnx_kvtool.runtime.sessions import Array
from onnx_kvtool.runtime.verification.likeness import Likeness

__all__ = [
    "SIZES",
    "WeightDifference",
    "Weighted",
    "is_recast",
    "place_of",
    "same_values",
    "tensor_difference",
    "weight_difference",
    "weight_differences",
]

_CHUNK = 1 << 24
"""Elements that are compared at a time."""

SIZES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, ir.DataType.STRING})
"""Types of constants that a rewrite may well change: shapes, axes, indices, masks."""

_MOST_ROWS = 5
"""Rows that are named of a weight that differs."""

_MADE = "kvtool/"
"""How the names of constants begin that a rewrite makes."""


class Weighted(Protocol):
    """A model of which the weights are known."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def weights(self) -> Mapping[str, ir.TensorProtocol]:
        """The initializers of its main graph, by name."""
        ...


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """How an initializer of the main graphs differs.

    Attributes:
        a: Its name in A.
        b: Its name in B.
        rows: Some of the indices of its first axis at which it differs, the first and the last one
            among them; empty for a scalar, and where types or shapes differ.
        reason: Its first element that differs, in words.
        share: Largest difference, as a share of the largest finite value; infinite if the types or
            shapes differ.
        is_permuted: Whether both hold the same values in another order.
    """

    a: str
    b: str
    rows: tuple[int, ...]
    reason: str
    share: float
    is_permuted: bool


def weight_differences(
    a: Weighted, b: Weighted, found: Likeness | None
) -> Iterator[WeightDifference]:
    """Yield each initializer of the main graphs that differs; see `weight_difference`.

    In models that are not alike, those of one name are compared that may be sizes, too.
    """
    for name_a, name_b in _names(a, b, found, with_sizes=True):
        one, other = a.weights[name_a], b.weights[name_b]
        reason = _difference(f"initializer `{name_a}`", one, other, (a.name, b.name))
        if reason is not None:
            yield _described(
                WeightDifference(name_a, name_b, (), reason, math.inf, False), one, other
            )


def _described(
    found: WeightDifference, a: ir.TensorProtocol, b: ir.TensorProtocol
) -> WeightDifference:
    """Return the difference with all that follows from the values."""
    one, other = array(a), array(b)
    if (one.dtype, one.shape) != (other.dtype, other.shape) or one.dtype == np.dtype(object):
        return found
    flat = [value.reshape(len(value) if value.ndim else 1, -1) for value in (one, other)]
    step = max(1, _CHUNK // max(1, flat[0].shape[1]))
    rows: list[int] = []
    apart = 0.0
    for start in range(0, len(flat[0]), step):
        parts = [value[start : start + step] for value in flat]
        differs = bits_differ(*parts).any(axis=1)
        if differs.any():
            rows += [start + int(row) for row in np.flatnonzero(differs)]
            apart = max(apart, distances(*(part[differs] for part in parts))[0])
    scale = largest(one)
    return replace(
        found,
        rows=_some(rows) if one.ndim else (),
        share=apart / scale if scale else math.inf,
        is_permuted=bool(np.array_equal(np.sort(one, axis=None), np.sort(other, axis=None))),
    )


def _some(rows: list[int]) -> tuple[int, ...]:
    """Return the first, the last and some rows in between."""
    places = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)
    return tuple(rows[place] for place in places)


def weight_difference(a: Weighted, b: Weighted, found: Likeness | None) -> str | None:
    """Return the first weight that differs between the models; None if none does.

    Args:
        a: Model A.
        b: Model B.
        found: How the models correspond. None if they are not alike; then only weights of the same
            name, type and shape are compared, and no integers that may be sizes.
    """
    for name_a, name_b in _names(a, b, found):
        label, sides = f"initializer `{name_a}`", (a.name, b.name)
        reason = _difference(label, a.weights[name_a], b.weights[name_b], sides)
        if reason is not None:
            return reason
    return tensor_difference(a, b, found)


def tensor_difference(a: Weighted, b: Weighted, found: Likeness | None) -> str | None:
    """Return the first tensor in an attribute or a sub-graph that differs in models alike."""
    for label, one, other in () if found is None else found.tensors:
        if onnx.TensorProto.EXTERNAL in (one.data_location, other.data_location):
            continue
        arrays = numpy_helper.to_array(one), numpy_helper.to_array(other)
        reason = _compared(label, *arrays, (a.name, b.name))
        if reason is not None:
            return reason
    return None


def is_recast(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    """Return whether one tensor may be the bytes of another, read as another type or shape.

    The types are the same, or those of one are bytes: uint8, and of the other of 8 bits or less an
    element.
    """
    if a.dtype == b.dtype:
        return tuple(a.shape) != tuple(b.shape) and a.size == b.size
    narrow = {a.dtype, b.dtype} - {ir.DataType.UINT8}
    if len(narrow) > 1 or not all(0 < int(t.dtype.bitwidth or 0) <= 8 for t in (a, b)):
        return False
    return bool(tensor_bits(a) == tensor_bits(b))


def tensor_bits(tensor: ir.TensorProtocol) -> int:
    """Return how many bits the elements of a tensor take, without what fills up the last byte."""
    return int(tensor.size) * int(tensor.dtype.bitwidth)


def same_values(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    """Return whether two tensors hold the same bits, in one type and shape or read as others.

    One that is converted is held against the other as it was before.

    Values that lie at the same place in the same file are not read.

    Raises:
        KvtoolError: If values cannot be read.
    """
    if isinstance(b, ConvertedTensor):
        return same_values(a, b.source)
    if isinstance(a, ConvertedTensor):
        return same_values(a.source, b)
    recast = is_recast(a, b)
    if not recast and (a.dtype, tuple(a.shape)) != (b.dtype, tuple(b.shape)):
        return False
    if a is b or place_of(a) == place_of(b) is not None:
        return True
    if recast:
        return bool(a.tobytes() == b.tobytes())
    return _compared("", array(a), array(b), ("", "")) is None


def _names(
    a: Weighted, b: Weighted, found: Likeness | None, *, with_sizes: bool = False
) -> list[tuple[str, str]]:
    if found is not None:
        return [
            (x, y)
            for x, y in found.weights
            if x in a.weights and y in b.weights and not _is_made(x, y, b.weights[y])
        ]
    return [
        (name, name)
        for name, tensor in a.weights.items()
        if (with_sizes or tensor.dtype not in SIZES)
        and (other := b.weights.get(name)) is not None
        and (other.dtype, tuple(other.shape)) == (tensor.dtype, tuple(tensor.shape))
    ]


def _is_made(name: str, other: str, tensor: ir.TensorProtocol) -> bool:
    """Return whether a rewrite put sizes, axes or indices of its own in the place of others."""
    return name != other and other.startswith(_MADE) and tensor.dtype in SIZES


def _difference(
    label: str, a: ir.TensorProtocol, b: ir.TensorProtocol, sides: tuple[str, str]
) -> str | None:
    if a is b or place_of(a) == place_of(b) is not None:
        return None
    try:
        return _compared(label, array(a), array(b), sides)
    except KvtoolError:
        return None  # values that cannot be read; whoever runs the models meets the same


def place_of(tensor: ir.TensorProtocol) -> tuple[Any, ...] | None:
    """Return where the bytes of an external tensor lie; None for any other."""
    if not isinstance(tensor, ir.ExternalTensor):
        return None
    return os.path.realpath(tensor.path), tensor.offset or 0, tensor.length


def _compared(label: str, a: Array, b: Array, sides: tuple[str, str]) -> str | None:
    """Return the first element of two weights that differs in a bit; chunk by chunk."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{label} is of dtype {b.dtype} and shape {b.shape}, not {a.dtype} and {a.shape}"
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for start in range(0, a.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        found = compare("", flat_a[part], flat_b[part], exact=True)
        if found.first_mismatch is not None:
            flat = start + found.first_mismatch.index[0]
            index = [int(i) for i in np.unravel_index(flat, a.shape)]
            return (
                f"{label} at {index} is {found.first_mismatch.actual} in {sides[1]}, "
                f"{found.first_mismatch.expected} in {sides[0]}"
            )
    return None
