"""Operators that make values: constants, counters, sizes, filled tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.ops.traits import EXACT, FLOAT_TYPES, SIZE_TYPES, WHOLE_TYPES
from onnx_kvtool.ops.view import MalformedNode, counted_axis
from onnx_kvtool.symbolic.contents import IndexMap, elements
from onnx_kvtool.symbolic.expressions import (
    ZERO,
    Expr,
    Extent,
    coordinate,
    integer,
    product,
    variable,
)
from onnx_kvtool.symbolic.rules.site import ElementSite, Shapes, ShapeSite, Unknown, asked, placed
from onnx_kvtool.symbolic.simplification import (
    OUTSIDE,
    Facts,
    divided,
    from_the_front,
    is_zero,
    largest,
    lookup,
    modulo,
    substitute,
)

# Constants: numbers in a file, read as functions of their coordinates where they are some.


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
    """Return the content of an initializer that no caller can override; None for other values."""
    tensor = value.const_value
    if tensor is None or not value.is_initializer() or value.is_graph_input():
        return None
    return described(tensor)


def constant_elements(site: ElementSite) -> IndexMap | None:
    """Constant."""
    for name in site.node.attributes:
        held = site.view.attribute(name)
        if name in ("value_int", "value_ints"):
            return _whole(np.asarray(held, np.int64), ir.DataType.INT64)
        if name in ("value_float", "value_floats"):
            return _floats(np.asarray(held, np.float32), ir.DataType.FLOAT)
    tensor = site.tensor("value")
    return None if tensor is None else described(tensor)


def described(tensor: ir.TensorProtocol) -> IndexMap | None:
    """Return what a tensor holds; None where its shape makes no sense.

    Its elements are unknown where it is too large to be looked at, or cannot be read.
    """
    dtype, sizes = tensor.dtype, tensor.shape.numpy()
    if any(n < 0 for n in sizes):
        return None
    most = _MOST if dtype in WHOLE_TYPES else _MOST_FLOATS if dtype in FLOAT_TYPES else -1
    is_far = dtype in FLOAT_TYPES and isinstance(tensor, ir.ExternalTensor)
    numbers = None if is_far or tensor.size > most else elements(tensor)
    if numbers is None:
        return IndexMap(tuple(map(integer, sizes)), dtype)
    if dtype in WHOLE_TYPES:
        return _whole(numbers.astype(np.int64), dtype)
    return _floats(numbers.astype(np.float64), dtype)


def _floats(array: NDArray[np.floating], dtype: ir.DataType) -> IndexMap:
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    if array.size and bool((whole == array).all()) and int(np.abs(whole).max()) <= EXACT:
        return _whole(whole, dtype)
    return IndexMap(tuple(map(integer, array.shape)), dtype)


def _whole(array: _Array, dtype: ir.DataType) -> IndexMap:
    """Return the map of an array; its elements are unknown where they follow no pattern."""
    shape = tuple(map(integer, array.shape))
    found = _pattern(array)
    if found is not None:
        return IndexMap.whole(shape, dtype, found)
    # Index tuples: each component follows a pattern of its own.
    if array.ndim > 1 and array.shape[-1] <= 8:
        parts = [_pattern(array[..., k]) for k in range(array.shape[-1])]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return IndexMap.stacked(shape, dtype, array.ndim - 1, known)
    return IndexMap(shape, dtype)


def _pattern(array: _Array) -> Expr | None:
    """Return the elements as an expression over their coordinates; None when there is none.

    Recognised are sums of multiples of coordinates, with one list of numbers along one axis, and
    such sums modulo a number.
    """
    if array.size == 0:
        return ZERO
    return _sum(array) or _list_and_sum(array) or _wrapped(array)


def _sum(array: _Array) -> Expr | None:
    return _checked(array, {}, _steps(array), int(array.flat[0]))


def _steps(array: _Array) -> dict[int, int]:
    """Return the difference of the first two elements along each axis that has two."""
    first, steps = int(array.flat[0]), {}
    for axis, size in enumerate(array.shape):
        if size > 1:
            place = [0] * array.ndim
            place[axis] = 1
            steps[axis] = int(array[tuple(place)]) - first
    return steps


def _list_and_sum(array: _Array) -> Expr | None:
    for axis, size in enumerate(array.shape):
        if not 1 < size <= _LONGEST_LIST:
            continue
        numbers = tuple(map(int, np.moveaxis(array, axis, -1).reshape(-1, size)[0]))
        steps = {other: step for other, step in _steps(array).items() if other != axis}
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
                return modulo(start + coordinate(axis), integer(n))
    return None


def _column(numbers: _Array, axis: int, rank: int) -> _Array:
    return numbers.reshape([-1 if i == axis else 1 for i in range(rank)])


# Operators that make integers: constants, counters, sizes, filled tensors.


def constant(site: ShapeSite) -> Shapes:
    """Constant: the shape of its tensor; a list has one axis, a single element none."""
    for name, attribute in site.node.attributes.items():
        if attribute.is_ref() or attribute.value is None:
            break
        if attribute.type == ir.AttributeType.TENSOR:
            return (tuple(map(integer, attribute.value.shape.numpy())),)
        if isinstance(attribute.value, (list, tuple)):
            return ((integer(len(attribute.value)),),)
        if name in ("value_int", "value_float", "value_string"):
            return ((),)
    raise Unknown("unbound-attribute", "its attribute has no value here")


def constant_of_shape(site: ShapeSite) -> Shapes:
    """ConstantOfShape: the elements of its input."""
    value = site.value(0)
    why = site.cause_of(value)
    sizes = enumerate(asked(site, value))
    return (tuple(site.lost(axis, why) if size is None else size for axis, size in sizes),)


def range_(site: ShapeSite) -> Shapes:
    """Range: as many steps as stay before the limit."""
    given: list[Expr] = []
    for value in [site.value(i) for i in range(3)]:
        scalar = site.content(value).scalar()
        if scalar is None:
            return ((site.lost(0, site.cause_of(value)),),)
        given.append(scalar)
    start, limit, delta = given
    step = delta.number
    if not step:
        return ((site.lost(0, f"the step `{value.name}` is not constant"),),)
    way = (limit - start) if step > 0 else (start - limit)
    count = divided(way + (abs(step) - 1), integer(abs(step)))
    return ((largest((count, ZERO)),),)


def one_hot(site: ShapeSite) -> Shapes:
    """OneHot: a new axis of `depth`."""
    shape, value = site.shape(0), site.value(1)
    axis = placed(site.view.integer("axis"), len(shape) + 1)
    size = site.content(value).scalar() or site.lost(axis, site.cause_of(value))
    return ((*shape[:axis], size, *shape[axis:]),)


def shape_vector(site: ShapeSite) -> Shapes:
    """Shape: one number per axis from `start` to `end`."""
    value = site.value(0)
    rank = site.rank_of(value)
    if rank is None:
        return ((site.lost(0, f"the rank of `{value.name}` is unknown", code="unknown-rank"),),)
    start, end = site.view.number("start"), site.view.number("end", rank)
    return ((integer(len(range(rank)[start:end])),),)


def scalar(site: ShapeSite) -> Shapes:
    """Size and whatever else gives a scalar."""
    return ((),)


def non_zero(site: ShapeSite) -> Shapes:
    """NonZero: a column for each element that is not zero."""
    value = site.value(0)
    rank = len(site.shape(0))
    return ((integer(rank), site.lost(1, f"it counts nonzero elements of `{value.name}`")),)


def range_elements(site: ElementSite) -> IndexMap | None:
    """Range-11: `start + delta * i`, for as many i as stay before `limit`."""
    given = [operand.scalar() for operand in site.inputs]
    if site.dtype not in SIZE_TYPES or len(given) != 3:
        return None
    start, _, delta = given
    if None in given or start is None or delta is None or delta.number == 0:
        return None
    return site.whole(start + coordinate(0) * delta)


def shape_elements(site: ElementSite) -> IndexMap | None:
    """Shape-1/13/15/...: sizes of the input from `start` to `end`."""
    value = site.value(0)
    sizes = site.knowledge.shapes.get(value)
    start, end = site.view.number("start"), site.view.number("end", OUTSIDE)
    if sizes is not None:
        return site.stacked(0, sizes[start:end])
    if start < 0 or end != OUTSIDE:
        return None
    return site.whole(variable(Extent(value, coordinate(0) + start)))


def size_elements(site: ElementSite) -> IndexMap | None:
    """Size-1/13/...: the number of elements of the input."""
    return site.whole(product(site.shape(0)))


def constant_of_shape_elements(site: ElementSite) -> IndexMap | None:
    """ConstantOfShape-9/...: one number everywhere; float zero where there is no `value`."""
    tensor = site.tensor("value")
    dtype, number = ir.DataType.FLOAT, ZERO
    if tensor is not None:
        held = described(tensor)
        element = held.scalar() if held is not None else None
        if held is None or element is None or held.dtype is None:
            return None
        dtype, number = held.dtype, element
    if any((size.number or 0) < 0 for size in site.sizes):
        raise MalformedNode("negative-size", "`ConstantOfShape` reads a size below 0")
    return IndexMap.whole(site.sizes, dtype, number)


def one_hot_elements(site: ElementSite) -> IndexMap | None:
    """OneHot-11: `on` where the new coordinate is the index, which may count from the end."""
    indices, shape = site.ranked(0)
    depth, pair = site.expressions("depth"), site.expressions("values")
    if indices.dtype not in SIZE_TYPES or indices.element is None or pair is None:
        return None
    if depth is None or len(depth) != 1:
        return None
    (count,) = depth
    if len(pair) != 2 or (count.number or 0) < 0:
        raise MalformedNode(
            "one-hot-operands", "`OneHot` takes two values and a depth of 0 or more"
        )
    rank = len(shape) + 1
    axis = counted_axis(site.view.integer("axis"), rank)
    place = {i: coordinate(i + (i >= axis)) for i in range(rank - 1)}
    facts = Facts(site.sizes)
    row = from_the_front(substitute(indices.element, place, facts), count, facts)
    off, on = pair
    return site.whole(off + (on - off) * is_zero(row - coordinate(axis), facts))
