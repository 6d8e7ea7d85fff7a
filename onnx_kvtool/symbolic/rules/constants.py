"""Constants: numbers in a file, read as functions of their coordinates where they are some."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.ops.element_type import EXACT, FLOAT_TYPES, WHOLE_TYPES
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer
from onnx_kvtool.symbolic.forms import lookup, modulo
from onnx_kvtool.symbolic.index_map import IndexMap
from onnx_kvtool.symbolic.rules.element_site import ElementSite
from onnx_kvtool.symbolic.stored import elements

__all__ = ["constant_elements", "described", "stored"]

_MOST = 2**18
"""Most elements of an integer constant that is read; an index this long takes 2 MiB."""

_MOST_FLOATS = 4096
"""Most elements of a constant of another type that is read; larger ones are weights."""

_LONGEST_LIST = 1024
"""Most numbers of a list that an expression refers to."""

_FAR = 2**62
"""Largest number of a pattern that has more than one element."""

_Array = NDArray[np.int64]


def stored(value: ir.Value) -> IndexMap | None:
    """Return what an initializer holds that no caller can override; None for other values."""
    tensor = value.const_value
    if tensor is None or not value.is_initializer() or value.is_graph_input():
        return None
    return described(tensor)


def constant_elements(site: ElementSite) -> IndexMap | None:
    """Constant."""
    # The names that the operator has at this opset; others have no meaning.
    attributes = site.node.attributes.keys() & site.view.facts.attributes.keys()
    for name in ("value_int", "value_ints"):
        if name in attributes:
            return _whole(np.asarray(site.view.attribute(name), np.int64), ir.DataType.INT64)
    for name in ("value_float", "value_floats"):
        if name in attributes:
            array = np.asarray(site.view.attribute(name), np.float32)
            return _floats(array, ir.DataType.FLOAT)
    tensor = site.tensor("value") if "value" in attributes else None
    return None if tensor is None else described(tensor)


def described(tensor: ir.TensorProtocol) -> IndexMap | None:
    """Return what a tensor holds; None where its shape makes no sense.

    Its elements are unknown where it is too large to be looked at, or cannot be read.
    """
    dtype = tensor.dtype
    sizes = tuple(tensor.shape.numpy())
    if any(n < 0 for n in sizes):
        return None
    numbers = None
    if dtype in WHOLE_TYPES and tensor.size <= _MOST:
        numbers = elements(tensor)
    elif dtype in FLOAT_TYPES and tensor.size <= _MOST_FLOATS:
        numbers = None if isinstance(tensor, ir.ExternalTensor) else elements(tensor)
    if numbers is None:
        return IndexMap(tuple(integer(n) for n in sizes), dtype, None, ())
    if dtype in WHOLE_TYPES:
        return _whole(numbers.astype(np.int64), dtype)
    return _floats(numbers.astype(np.float64), dtype)


def _floats(array: NDArray[np.floating], dtype: ir.DataType) -> IndexMap:
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    if array.size and bool((whole == array).all()) and int(np.abs(whole).max()) <= EXACT:
        return _whole(whole, dtype)
    return IndexMap(tuple(integer(n) for n in array.shape), dtype, None, ())


def _whole(array: _Array, dtype: ir.DataType) -> IndexMap:
    """Return the map of an array; its elements are unknown where they follow no pattern."""
    shape = tuple(integer(n) for n in array.shape)
    found = _pattern(array)
    if found is not None:
        return IndexMap.whole(shape, dtype, found)
    # Index tuples: each component follows a pattern of its own.
    if array.ndim > 1 and array.shape[-1] <= 8:
        parts = [_pattern(array[..., k]) for k in range(array.shape[-1])]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return IndexMap.stacked(shape, dtype, array.ndim - 1, known)
    return IndexMap(shape, dtype, None, ())


def _pattern(array: _Array) -> Expr | None:
    """Return the elements as an expression over their coordinates; None when there is none.

    Recognised are sums of multiples of coordinates, with one list of numbers along one axis, and
    such sums modulo a number.
    """
    if array.size == 0:
        return integer(0)
    return _sum(array) or _list_and_sum(array) or _wrapped(array)


def _sum(array: _Array) -> Expr | None:
    origin = (0,) * array.ndim
    steps: dict[int, int] = {}
    for axis, size in enumerate(array.shape):
        if size > 1:
            steps[axis] = int(array[_at(origin, axis, 1)]) - int(array[origin])
    return _checked(array, {}, steps, int(array[origin]))


def _list_and_sum(array: _Array) -> Expr | None:
    origin = (0,) * array.ndim
    for axis, size in enumerate(array.shape):
        if not 1 < size <= _LONGEST_LIST:
            continue
        numbers = tuple(
            int(n) for n in array[tuple(slice(None) if i == axis else 0 for i in range(array.ndim))]
        )
        steps = {
            i: int(array[_at(origin, i, 1)]) - int(array[origin])
            for i, n in enumerate(array.shape)
            if n > 1 and i != axis
        }
        found = _checked(array, {axis: numbers}, steps, 0)
        if found is not None:
            return found
    return None


def _checked(
    array: _Array, lists: Mapping[int, tuple[int, ...]], steps: Mapping[int, int], base: int
) -> Expr | None:
    """Return `base` + lists + steps * coordinates where the array holds just that."""
    ends = [(base, base), *((min(numbers), max(numbers)) for numbers in lists.values())]
    ends += [(0, step * (array.shape[axis] - 1)) for axis, step in steps.items()]
    # Beyond, numpy's sums would wrap around, and an expression's do not.
    if steps and any(abs(sum(side(*end) for end in ends)) > _FAR for side in (min, max)):
        return None
    expected = np.full((1,) * array.ndim, base, np.int64)
    result = integer(base)
    for axis, numbers in lists.items():
        expected = expected + _column(np.asarray(numbers, np.int64), axis, array.ndim)
        result = result + lookup(numbers, coordinate(axis))
    for axis, step in steps.items():
        expected = expected + _column(np.arange(array.shape[axis]) * step, axis, array.ndim)
        result = result + coordinate(axis) * step
    return result if bool((array == expected).all()) else None


def _wrapped(array: _Array) -> Expr | None:
    """Read `(first + coordinate) mod n`, where `first` does not depend on that coordinate."""
    for axis, size in enumerate(array.shape):
        if size < 2:
            continue
        if max(abs(int(array.min())), abs(int(array.max()))) > _FAR:
            return None
        steps = np.diff(array, axis=axis)
        n = 1 - int(steps.min())
        if n < 2:
            continue
        first = np.take(array, [0], axis=axis)
        counter = _column(np.arange(size), axis, array.ndim)
        if bool((array == (first + counter) % n).all()):
            start = _sum(first) or _list_and_sum(first)
            if start is not None:
                return modulo(start + coordinate(axis), integer(n), Facts())
    return None


def _column(numbers: _Array, axis: int, rank: int) -> _Array:
    return numbers.reshape([-1 if i == axis else 1 for i in range(rank)])


def _at(origin: tuple[int, ...], axis: int, place: int) -> tuple[int, ...]:
    return (*origin[:axis], place, *origin[axis + 1 :])
